"""A sweep whose module builds a table when it is imported: table_sweep.py STRENGTH FOLDER."""

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TABLE_SECONDS", str(3.5 * float(sys.argv[1]) if len(sys.argv) > 1 else 0.0))


def build_table(cpu_s):
    until = time.thread_time() + cpu_s
    table = []
    while time.thread_time() < until:
        table = [x**0.5 for x in range(5000)]
    return table


TABLE = build_table(float(os.environ["TABLE_SECONDS"]))


def look_up(number, cpu_s):
    until = time.thread_time() + cpu_s
    value = 0.0
    while time.thread_time() < until:
        value += sum(x * 0.25 for x in range(2000))
    return value


if __name__ == "__main__":
    import flightlog

    path = Path(sys.argv[2]) / "flightlog.yaml"
    path.write_text(
        json.dumps(
            {
                "version": 1,
                "project": {"name": "table"},
                "targets": {"here": {"provider": "local", "max_workers": 2}},
                "components": {"small": {"cpus": 1, "memory": "512MB"}},
                "tasks": {"look_up": {"component": "small"}},
            }
        )
    )
    with flightlog.Session.from_yaml(str(path), target="here") as session:
        session.client.gather(session.client.map(look_up, range(18), cpu_s=0.4))
