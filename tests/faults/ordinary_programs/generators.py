import gc

import flightlog


def numbers():
    with flightlog.span("numbers"):
        yield from range(10)
        print("never reached")


with flightlog.record("x"):
    for number in numbers():
        if number == 3:
            break
    half = numbers()
    print(next(half), next(half))
    del half
    gc.collect()
    print(sum(numbers()))
