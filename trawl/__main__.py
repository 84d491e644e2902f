"""``python -m trawl``: the command."""

import sys

if not sys.flags.safe_path:  # a file in the working directory, which is first, would hide modules of that name
    sys.path.append(sys.path.pop(0))

from trawl.cli import main

if __name__ == "__main__":
    sys.exit(main())
