import threading

import flightlog

done = []


def work(i):
    for _ in range(20):
        with flightlog.span("work", i=i):
            pass
    done.append(i)


with flightlog.record("x"):
    threads = [threading.Thread(target=work, args=(i,)) for i in range(150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(len(done), threading.active_count())
