"""A million events of four processes arrive at a follower once and in order, while one of them is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

import flightlog
from flightlog.events import Metric, SpanEvent
from flightlog.store.run import Run

EACH = 250_000
PROGRAM = f"""
import flightlog, sys
run = flightlog.current_run()
number = 0
while number < {EACH} or sys.argv[1] == "killed":
    if number % 5:
        run.metric("number", number)
    else:
        with flightlog.span("work", number=number): pass
    number += 1
    if number == {EACH}:
        print(run.recorder.writer, flush=True)
sys.stdin.read()
"""


@pytest.mark.timeout(600)
def test_a_million_events_arrive_once_and_in_order_while_a_process_is_killed(tmp_path):
    reached: dict[tuple[str, str], int] = {}
    disorder = []

    def follow() -> None:
        for event in stream:
            assert isinstance(event, Metric | SpanEvent)
            of = event.writer, event.stream
            if event.seq != reached.get(of, 0):
                disorder.append((of, event.seq))
            reached[of] = event.seq + 1

    with flightlog.record("million", runs_dir=tmp_path, sample_interval_s=None) as run:
        stream = Run(run.path).follow(events=["metric", "span"])
        follower = threading.Thread(target=follow)
        follower.start()
        children = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, fate],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for fate in ("killed", "", "", "")
        ]
        writers = []
        for child in children:
            assert child.stdout is not None
            writers.append(child.stdout.readline().strip())
            if child is children[0]:
                child.send_signal(signal.SIGKILL)
            child.communicate()
        assert [child.returncode for child in children] == [-signal.SIGKILL, 0, 0, 0]
    follower.join(300)
    recorded = [sum(number for (of, _), number in reached.items() if of == writer) for writer in writers]
    assert (disorder, stream.missing, recorded[1:]) == ([], 0, [EACH] * 3)
    assert recorded[0] >= EACH
    lines = (event for name in ("metrics", "spans") for event in Run(run.path).events(name))
    assert sum(reached.values()) == sum(isinstance(line, Metric | SpanEvent) for line in lines)
