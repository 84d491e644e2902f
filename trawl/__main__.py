"""``python -m trawl``: the command."""

import sys

if not sys.flags.safe_path:  # search the working directory last, so that its files hide no modules
    sys.path.append(sys.path.pop(0))

from trawl.cli import main

if __name__ == "__main__":
    sys.exit(main())
