import gc
import weakref

import flightlog


class Thing:
    def __del__(self):
        with flightlog.span("finalizer"):
            gone.append(1)


gone = []
with flightlog.record("x"):
    for _ in range(500):
        thing = Thing()
        thing.me = thing
        with flightlog.span("step"):
            del thing
    while len(gone) < 500:  # another thread may be collecting just now
        gc.collect()
    print(len(gone))
    weakref.finalize(Thing, print, "finalized at the end")
