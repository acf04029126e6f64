"""Molecules: eleven properties of one molecule, from its atoms and where they are."""
