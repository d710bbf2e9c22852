import flightlog


def down(n):
    with flightlog.span("down"):
        return down(n + 1)


with flightlog.record("x"):
    try:
        down(0)
    except RecursionError as error:
        print(type(error).__name__)
    with flightlog.span("after"):
        print("goes on")
