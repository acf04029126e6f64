"""The paper's data sets: how its files are read, what is computed from them once."""
