"""The paper's synthetic experiments."""
