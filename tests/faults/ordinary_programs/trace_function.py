import sys

import flightlog

lines = []


def trace(frame, kind, argument):
    if frame.f_code.co_filename == __file__ and frame.f_code.co_name == "traced":
        lines.append(frame.f_lineno)
        return trace
    return None


def traced():
    with flightlog.span("traced"):
        total = 1
        total += 1
    return total


with flightlog.record("x"):
    sys.settrace(trace)
    traced()
    print(sys.gettrace() is trace)
    sys.settrace(None)
print(lines)
