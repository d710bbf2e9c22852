import warnings

from joblib import Parallel, delayed

import flightlog

warnings.simplefilter("ignore")


def work(i):
    with flightlog.span("work", i=i):
        return i * i


with flightlog.record("x"):
    print(sum(Parallel(n_jobs=2, backend="threading")(delayed(work)(i) for i in range(50))))
    print(sum(Parallel(n_jobs=2)(delayed(work)(i) for i in range(50))))
