import os

import flightlog

with flightlog.record("x"):
    with flightlog.span("before"):
        pass
    os.closerange(3, 4096)
    files = [open(f"part-{i}.txt", "w") for i in range(40)]
    for i in range(3000):
        with flightlog.span("line", i=i):
            files[i % 40].write(f"{i}\n")
    for file in files:
        file.close()
print("done")
