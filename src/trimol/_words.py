"""Words that agree with their numbers."""


def count(n: int, thing: str) -> str:
    """Return how many of a thing, in words that agree.

    >>> count(1, "seed"), count(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"
