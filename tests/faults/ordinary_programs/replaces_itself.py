import os
import sys

import flightlog

with flightlog.record("x"), flightlog.span("step"):
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-S", "-c", "print('another program')"])
