import signal

import flightlog


def too_late(number, frame):
    raise TimeoutError


signal.signal(signal.SIGALRM, too_late)
caught = 0
with flightlog.record("x"):
    for _ in range(20):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            while True:
                with flightlog.span("busy", n=1) as span:
                    span.metrics["loss"] = 0.5
        except TimeoutError:
            caught += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
print(caught)
