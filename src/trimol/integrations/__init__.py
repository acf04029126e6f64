"""Other libraries beside trimol, each an extra that is imported where it is used."""
