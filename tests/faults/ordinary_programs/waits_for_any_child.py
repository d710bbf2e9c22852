import os
import signal
import subprocess

import flightlog

subprocess.run(["git", "init", "-q", "."], check=True)
ended = []
signal.signal(signal.SIGCHLD, lambda number, frame: ended.append(number))
for _ in range(3):
    with flightlog.record("x"):
        for code in (5, 6):
            child = os.fork()
            if child == 0:
                with flightlog.span("child"):
                    pass
                os._exit(code)
            print(os.waitstatus_to_exitcode(os.waitpid(-1, 0)[1]))
try:
    print("another child?", os.wait())
except ChildProcessError:
    print("no other child")
print(len(ended))
