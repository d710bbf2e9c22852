"""Subinterpreters: what can be recorded is, and neither an exception nor an abort reaches the program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders.runs import finished

from flightlog.store.run import Run

pytest.importorskip("_xxsubinterpreters", reason="the interpreters of Python 3.11 and 3.12")

# `inside(code)` runs code in a new subinterpreter and ends that: with a thread left in it, the process would
# abort.
PREPARED = """
import sys, _xxsubinterpreters as interpreters
runs, isolated = sys.argv[1], sys.argv[2] == "isolated"

def inside(code):
    new = interpreters.create(isolated=isolated)
    interpreters.run_string(new, f"import sys; sys.path[:] = {sys.path!r}; runs = {runs!r}\\n" + code)
    interpreters.destroy(new)
    print("ended")
"""
RECORDED = '''
inside("""
import flightlog
with flightlog.record("sub", runs_dir=runs) as run:
    with flightlog.span("outer"), flightlog.span("inner"):
        run.metric("loss", 0.5)
    with run.task("task"):
        pass
""")
'''
LEFT_OPEN = '''
inside("""
import flightlog
recording = flightlog.record("sub", runs_dir=runs)
recording.__enter__()
with flightlog.span("outer"):
    pass
""")
'''
JOINED = '''
import flightlog
with flightlog.record("main", runs_dir=runs, sample_interval_s=0.1):
    inside("""
import flightlog
with flightlog.span("in the subinterpreter"):
    pass
""")
    with flightlog.span("after it"):
        pass
'''
REFUSED = '''
inside("""
import sys
sys.modules["msgspec"] = None  # as if it refused to load here
import flightlog

@flightlog.span
def work():
    with flightlog.span("inner", x=1) as span:
        span.metrics["loss"] = 0.5
        span.add_metric("loss", 0.5)
    return "worked"

@flightlog.record("decorated")
def whole():
    return work()

with flightlog.record("sub", runs_dir=runs) as run, run.task("task"):
    run.metric("loss", 0.5)
    with flightlog.attached(flightlog.carrier()):
        print(work(), whole(), flightlog.current_run(), flush=True)
""")
'''
WARNING = (
    "a subinterpreter is recorded without samples, heartbeats and handling of signals; the program goes on, "
    "what cannot be recorded is counted\n"
)


def recorded(program: str, kind: str, folder: Path) -> tuple[tuple[int, str, str], Run]:
    """What came of a program with a subinterpreter, and the run that it made."""
    outcome = run_program(program, kind, folder)
    (path,) = [path for path in folder.iterdir() if path.name.startswith("run-")]
    return outcome, Run(path)


def run_program(program: str, kind: str, folder: Path) -> tuple[int, str, str]:
    """Exit code, output and errors."""
    done = subprocess.run(
        [sys.executable, "-c", PREPARED + program, folder, kind],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith(("FLIGHTLOG", "TRACEPARENT", "PYTEST"))},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("kind", ["isolated", "shared"])
def test_a_run_in_a_subinterpreter_is_recorded_without_threads_and_says_so_once(kind, tmp_path):
    outcome, run = recorded(RECORDED, kind, tmp_path)
    assert outcome == (0, "ended\n", WARNING)
    names = {span.span_id: span.name for span in finished(run)}
    assert {span.name: names.get(span.parent_id) for span in finished(run)} == {
        "inner": "outer",
        "outer": None,
    }
    counts = {stream: len(list(run.events(stream))) for stream in ("metrics", "tasks", "resources")}
    assert counts == {"metrics": 1, "tasks": 3, "resources": 0}
    assert (run.info.status, run.info.sample_interval_s) == ("completed", None)


def test_where_an_extension_refuses_to_load_one_warning_is_given_and_nothing_recorded(tmp_path):
    outcome = run_program(REFUSED, "isolated", tmp_path)
    warning = "nothing is recorded in this subinterpreter: import of msgspec halted; None in sys.modules\n"
    assert outcome == (0, "worked worked None\nended\n", warning)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["isolated", "shared"])
def test_a_run_left_open_ends_with_its_subinterpreter(kind, tmp_path):
    outcome, run = recorded(LEFT_OPEN, kind, tmp_path)
    assert outcome == (0, "ended\n", WARNING)
    assert (run.info.status, [span.name for span in finished(run)]) == ("interrupted", ["outer"])


@pytest.mark.parametrize("kind", ["isolated", "shared"])
def test_a_subinterpreter_joins_the_run_of_its_process(kind, tmp_path):
    outcome, run = recorded(JOINED, kind, tmp_path)
    assert outcome == (0, "ended\n", "")
    assert {span.name: span.parent_id for span in finished(run)} == {
        "in the subinterpreter": run.info.span_id,
        "after it": run.info.span_id,
    }
    assert run.info.status == "completed"
