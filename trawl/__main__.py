"""``python -m trawl``: the command."""

import sys

from trawl.cli import main

if __name__ == "__main__":
    sys.exit(main())
