import signal

import flightlog


class TooLate(BaseException):
    pass


def too_late(number, frame):
    raise TooLate


signal.signal(signal.SIGALRM, too_late)
caught = 0
for i in range(1, 13):
    try:
        signal.setitimer(signal.ITIMER_REAL, i * 0.002)
        while True:
            with flightlog.record("x", sample_interval_s=None):
                with flightlog.span("step"):
                    pass
    except TooLate:
        caught += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
print(caught)
