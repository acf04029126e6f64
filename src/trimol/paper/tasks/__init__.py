"""The paper's tasks."""
