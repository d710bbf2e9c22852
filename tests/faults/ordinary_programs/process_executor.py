import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import flightlog


def work(i):
    with flightlog.span("work", i=i):
        if i == 7:
            raise ValueError("seven")
        return i


with flightlog.record("x"):
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        for future in [pool.submit(work, i) for i in range(10)]:
            print(future.exception() or future.result())
