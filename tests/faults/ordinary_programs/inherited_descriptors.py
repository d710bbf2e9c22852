import os
import subprocess
import sys

import flightlog

LIST = "import os; print(len(os.listdir('/proc/self/fd')) if os.path.isdir('/proc') else 0)"
with flightlog.record("x"), flightlog.span("step"):
    print(
        subprocess.run(
            [sys.executable, "-S", "-c", LIST], close_fds=False, capture_output=True, text=True
        ).stdout
    )
print(len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc") else 0)
