import flightlog

with flightlog.record("x"):
    total = 0
    for i in range(2000):
        with flightlog.span("step", i=i) as span:
            span.metrics["i"] = i
            total += i
    print(total)
