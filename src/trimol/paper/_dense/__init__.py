"""Dense prediction: segmentation, depth and surface normals of one image, pixel by pixel."""

from trimol.paper._dense.dense_task import OBJECTIVES, DenseTask

__all__ = ["OBJECTIVES", "DenseTask"]
