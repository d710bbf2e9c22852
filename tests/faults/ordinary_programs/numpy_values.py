import numpy

import flightlog

generator = numpy.random.default_rng(1)
with flightlog.record("x") as run:
    array = generator.normal(size=100_000)
    with flightlog.span("step", array=array, scalar=numpy.float32(1.5)) as span:
        span.metrics["mean"] = array.mean()
        span.metrics["array"] = array
    run.metric("loss", numpy.float64("nan"))
print(array.sum(), array.flags.writeable)
