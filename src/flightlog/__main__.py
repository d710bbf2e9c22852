"""`python -m flightlog`: the command line, where its script is not on the path."""

import sys

from flightlog.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
