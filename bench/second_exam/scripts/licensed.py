"""Solves cases with an external solver, which waits for a licence: licensed.py WAIT."""

import subprocess
import sys
import time

import flightlog

wait_s = float(sys.argv[1])
for case in range(8):
    with flightlog.span("external_solver", case=case):
        subprocess.run(["sh", "-c", f"sleep {wait_s}; echo solved"], stdout=subprocess.DEVNULL, check=True)
    with flightlog.span("postprocess", case=case):
        until = time.thread_time() + 0.5
        total = 0.0
        while time.thread_time() < until:
            total += sum(x * 0.5 for x in range(2000))
