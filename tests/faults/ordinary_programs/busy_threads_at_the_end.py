import threading

import flightlog

stop = threading.Event()


def spin():
    while not stop.is_set():
        sum(range(100))


threads = [threading.Thread(target=spin) for _ in range(8)]
for thread in threads:
    thread.start()
with flightlog.record("x"):
    with flightlog.span("step"):
        pass
stop.set()
for thread in threads:
    thread.join()
print("done")
