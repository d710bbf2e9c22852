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
    gc.collect()
    print(len(gone))
    weakref.finalize(Thing, print, "finalized at the end")
