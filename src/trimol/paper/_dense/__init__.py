"""Dense prediction: segmentation, depth and surface normals of one image, pixel by pixel."""
