"""`python -m emads.cli`, the same as `emads`."""

import sys

from emads.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
