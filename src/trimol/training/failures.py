"""What stops a run for a reason that its user can see and mend, each said in one line."""


class RunError(Exception):
    """A run cannot go on; the message is one line that says why and what to do."""


class Diverged(RunError):
    """A loss is NaN or infinite."""
