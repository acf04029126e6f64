"""Commands about the paper: found by the command line through the registration."""
