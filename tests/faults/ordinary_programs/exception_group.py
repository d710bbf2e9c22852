import flightlog

try:
    with flightlog.record("x"), flightlog.span("step"):
        raise ExceptionGroup("several", [ValueError("a"), KeyError("b")])
except* KeyError as found:
    print("caught", found.exceptions)
except* ValueError as found:
    print("caught", found.exceptions)
