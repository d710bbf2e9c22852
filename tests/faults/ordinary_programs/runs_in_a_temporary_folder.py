import multiprocessing
import os
import tempfile

import flightlog


def work(i):
    with flightlog.span("work", i=i):
        return i


for _ in range(3):
    with tempfile.TemporaryDirectory() as folder:
        with flightlog.record("x", runs_dir=folder):
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(sum(pool.map(work, range(50))))
    print(os.path.exists(folder))
with flightlog.record("x"):
    pass
