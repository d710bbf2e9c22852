import sys

import flightlog

with flightlog.record("x"):
    for line in sys.stdin:
        with flightlog.span("line"):
            print(line.strip().upper())
