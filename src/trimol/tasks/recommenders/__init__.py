"""Recommenders: several yes-or-no labels of the same rows, looked up in large sparse tables."""
