import random

import flightlog

random.seed(42)
with flightlog.record("x") as run:
    for i in range(50):
        with flightlog.span("draw", i=i):
            run.event("drawn")
print(random.random(), random.getstate()[1][-1])
