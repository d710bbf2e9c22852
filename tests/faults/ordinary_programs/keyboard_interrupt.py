import os
import signal
import sys

import flightlog

sys.excepthook = lambda kind, error, trace: print("interrupted by", kind.__name__, flush=True)
with flightlog.record("x"), flightlog.span("step"):
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
