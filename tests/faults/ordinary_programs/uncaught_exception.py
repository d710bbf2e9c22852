import flightlog

with flightlog.record("x"):
    with flightlog.span("step"):
        raise ValueError("the program's own")
