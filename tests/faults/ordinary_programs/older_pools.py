import multiprocessing
import warnings
from concurrent.futures import ProcessPoolExecutor
from pickle import PicklingError

from joblib import Parallel, delayed

import flightlog

warnings.simplefilter("ignore")


def work(i):
    with flightlog.span("work", i=i):
        if i == 7:
            raise ValueError("seven")
        return i


def tried(call, *args, **options):
    try:
        print(call(*args, **options))
    except (ValueError, PicklingError) as error:
        print(type(error).__name__, str(error)[:30])


fork = multiprocessing.get_context("fork")
with fork.Pool(2) as pool, ProcessPoolExecutor(2, mp_context=fork) as executor:
    print(list(executor.map(abs, range(-3, 0))))
    for _ in range(2):
        with flightlog.record("x"):
            for count in (5, 10):
                tried(pool.map, work, range(count))
                tried(pool.starmap, max, [(1, 2), (3, 4)], chunksize=1)
                tried(pool.apply, func=pow, args=(2, 3), kwds={})
                tried(lambda n: sorted(pool.imap_unordered(abs, range(-n, 0))), count)
                tried(lambda n: list(executor.map(work, range(n))), count)
                tried(lambda n: Parallel(n_jobs=2)(delayed(work)(i) for i in range(n)), count)
            tried(pool.map, lambda i: i, range(3))  # what cannot be pickled
        tried(pool.map, work, range(3))
        tried(lambda: Parallel(n_jobs=2)(delayed(work)(i) for i in range(3)))
