"""`python -m aicore` is the `aicore` command."""

import sys

from aicore.cli import main

if __name__ == "__main__":
    sys.exit(main())
