"""The paper's data sets: files, downloads, what is computed from them once."""
