from concurrent.futures import ThreadPoolExecutor

import flightlog


def work(i):
    with flightlog.span("work", i=i):
        return 1 / (i - 5)


with flightlog.record("x"), ThreadPoolExecutor(4) as pool:
    for future in [pool.submit(work, i) for i in range(10)]:
        print(future.exception() or round(future.result(), 3))
