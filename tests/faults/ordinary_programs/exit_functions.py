import atexit
import threading
import time

import flightlog

atexit.register(print, "registered before")


def linger():
    time.sleep(0.2)
    print("the thread ends", flush=True)


run = flightlog.record("x")
run.__enter__()
atexit.register(print, "registered inside")
threading.Thread(target=linger).start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
with flightlog.span("step"):
    print("main ends", flush=True)
