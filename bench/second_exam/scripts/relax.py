"""Relaxation on one thread, for so many CPU seconds: relax.py SECONDS [FILE to make when it begins]."""

import sys
import time
from pathlib import Path

if len(sys.argv) > 2:
    Path(sys.argv[2]).touch()
until = time.process_time() + float(sys.argv[1])
row = [0.0] * 400 + [1.0]
while time.process_time() < until:
    for i in range(1, len(row) - 1):
        row[i] = 0.5 * (row[i - 1] + row[i + 1])
print(sum(row))
