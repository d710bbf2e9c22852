import inspect

import flightlog


@flightlog.span("add")
def add(a, b=2, *, c: int = 3) -> int:
    """Adds."""
    return a + b + c


@flightlog.record("x")
def main():
    print(add(1), add.__name__, add.__doc__, inspect.signature(add))


main()
