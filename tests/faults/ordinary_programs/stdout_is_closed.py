import sys

import flightlog

with flightlog.record("x"), flightlog.span("step"):
    print("last words", flush=True)
    sys.stdout.close()
    sys.stderr.close()
