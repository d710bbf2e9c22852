from gevent import monkey

monkey.patch_all()

import gevent  # noqa: E402

import flightlog  # noqa: E402

seen = []


def work(i):
    with flightlog.span("work", i=i):
        gevent.sleep(0.01)
        seen.append(i)


with flightlog.record("x"):
    gevent.joinall([gevent.spawn(work, i) for i in range(20)], raise_error=True)
print(sorted(seen))
