"""`python -m flightlog.compat.scalable`: Scalable's command line."""

import sys

from flightlog.compat.scalable.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
