import gc
import locale
import logging
import signal
import sys
import threading
import warnings


def state():
    return (
        gc.isenabled(),
        gc.get_threshold(),
        locale.setlocale(locale.LC_ALL),
        logging.getLogger().handlers,
        sys.path[1:],
        sys.getrecursionlimit(),
        sys.getswitchinterval(),
        sys.getprofile(),
        sys.gettrace(),
        sys.excepthook,
        sys.stdout,
        threading.excepthook,
        threading.stack_size(),
        len(warnings.filters) > 0,
        signal.pthread_sigmask(signal.SIG_BLOCK, []),
        signal.getsignal(signal.SIGTERM),
        signal.getsignal(signal.SIGINT),
        signal.set_wakeup_fd(-1),
        threading.active_count(),
    )


before = state()
import flightlog  # noqa: E402

with flightlog.record("x"):
    with flightlog.span("step"):
        print("recorded")
after = state()
print([i for i, (a, b) in enumerate(zip(before, after)) if a != b])
