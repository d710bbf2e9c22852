import os
import sys

import daemon

import flightlog

folder = os.getcwd()
reader, writer = os.pipe()
if os.fork():
    os.close(writer)
    os.read(reader, 1)  # until the daemon is gone
    sys.exit(0)
with flightlog.record("x"):
    with daemon.DaemonContext(working_directory=folder, files_preserve=[writer]):
        with open("table.csv", "w") as out:
            for i in range(3000):
                with flightlog.span("row", i=i):
                    out.write(f"{i},{i * i}\n")
