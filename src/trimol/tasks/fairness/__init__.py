"""Fairness: tables about people, a loss for accuracy and one for the gap between two groups."""
