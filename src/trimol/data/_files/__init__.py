"""Data sets as files: which they are, where they are looked for, how they are fetched."""
