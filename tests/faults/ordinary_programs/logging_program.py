import logging
import sys

import flightlog

logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(name)s %(message)s")
with flightlog.record("x"), flightlog.span("step"):
    logging.getLogger("program").info("at work")
    logging.warning("nearly done")
print(logging.getLogger().handlers)
