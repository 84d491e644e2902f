"""``python -m trawl``: the command."""

import sys

if not sys.flags.safe_path:  # otherwise a file in the working directory would hide modules with the same name
    sys.path.append(sys.path.pop(0))

from trawl.cli import main

if __name__ == "__main__":
    sys.exit(main())
