"""Programs that go wrong in one way each, run by the tests as processes of their own."""

SESSION = '''
import os, signal, socket, sys, time
from pathlib import Path

from flightlog import Session

MANIFEST = """
version: 1
project: {name: faults}
targets: {local: {provider: local, max_workers: 2, processes: true}}
components: {sim: {cpus: 1, memory: 256M}}
tasks:
  too_slow: {timeout: 500ms}
  hungry: {component: sim}
"""


def without_module():
    import a_module_that_nobody_wrote


def refused():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    socket.create_connection(("127.0.0.1", port), timeout=5)


def no_room_in_address_space():
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    return len(bytearray(8 << 30))


def full_disk(folder):
    with open(f"{folder}/result.bin", "wb") as out:
        for _ in range(64):
            out.write(b"x" * (1 << 20))
            out.flush()


def too_slow():
    time.sleep(60)


def killed(n):
    if n == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return n


def crashes():
    os.kill(os.getpid(), signal.SIGSEGV)


def leaves():
    os._exit(7)


def hungry(n):
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # the kernel takes this process, and not one that happens to be as large
    held = bytearray(n << 20)
    held[:: 4096] = b"x" * len(held[:: 4096])
    return len(held)


def missing_file():
    return open("no/such/input.csv").read()


def first():
    raise ValueError("the first stage does not work")


def second(before):
    return before


if __name__ == "__main__":
    Path("flightlog.yaml").write_text(MANIFEST)
    with Session.from_yaml("flightlog.yaml", target="local", runs_dir=sys.argv[1], sample_interval_s=0.1) as session:
        run = session.client
        futures = eval(sys.argv[2])
        for future in futures:
            try:
                future.result(timeout=60)
            except Exception as error:
                print(type(error).__name__, error, file=sys.stderr)
'''

TRAINING = """
import sys

import flightlog

with flightlog.record("train", runs_dir=sys.argv[1], sample_interval_s=None) as run:
    weight = 1.0
    for step in range(40):
        weight *= 1e20  # a learning rate that is far too large
        loss = weight * weight - weight * weight
        run.metric("loss", loss, step=step)
        if step == 25 and sys.argv[2] == "raise":
            raise RuntimeError("training stopped: loss is nan")
"""
