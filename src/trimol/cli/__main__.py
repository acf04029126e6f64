"""``python -m trimol.cli`` is ``trimol``."""

import sys

from trimol.cli import main

if __name__ == "__main__":
    sys.exit(main())
