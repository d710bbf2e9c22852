import sys

import flightlog

with flightlog.record("x"), flightlog.span("step"):
    sys.exit(3)
