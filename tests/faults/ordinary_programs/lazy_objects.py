from django.utils.functional import SimpleLazyObject

import flightlog


def connect():
    raise ConnectionError("no database here")


with flightlog.record("x", tags={"lazy": SimpleLazyObject(connect)}) as run:
    lazy = SimpleLazyObject(connect)
    with flightlog.span("step", user=lazy) as span:
        span.metrics["loss"] = lazy
        span.tags["later"] = lazy
    run.event("seen", user=lazy)
    try:
        str(lazy)
    except ConnectionError as error:
        print(error)
