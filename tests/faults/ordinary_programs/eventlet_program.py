import warnings

warnings.simplefilter("ignore")
import eventlet  # noqa: E402

eventlet.monkey_patch()

import flightlog  # noqa: E402


def work(i):
    with flightlog.span("work", i=i):
        eventlet.sleep(0.01)
        return i


with flightlog.record("x"):
    print(list(eventlet.GreenPool(5).imap(work, range(20))))
