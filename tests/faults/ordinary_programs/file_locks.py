import fcntl

import flightlog

with open("lock", "w") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    with flightlog.record("x"), flightlog.span("step"):
        with open("lock2", "w") as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            print("locked")
    fcntl.lockf(lock, fcntl.LOCK_UN)
