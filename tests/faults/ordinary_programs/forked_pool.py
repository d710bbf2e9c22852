import multiprocessing

import flightlog


def square(i):
    with flightlog.span("square", i=i):
        return i * i


with flightlog.record("x"), multiprocessing.get_context("fork").Pool(2) as pool:
    print(sum(pool.map(square, range(100))))
