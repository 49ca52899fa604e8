"""`python -m ctxpack`; copied to the top of ctxpack.pyz, so its imports are absolute."""

import sys

from ctxpack.cli import main

if __name__ == "__main__":
    sys.exit(main())
