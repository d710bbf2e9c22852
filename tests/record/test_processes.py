"""Child processes of every kind record into the run they come from, each as a writer of its own."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from builders.runs import finished

import flightlog
from flightlog.analyze.verify import verify
from flightlog.events import SpanEvent
from flightlog.store.completing import open_run
from flightlog.store.run import Run


def work(number: int) -> int:
    with flightlog.span("child", number=number):
        run = flightlog.current_run()
        assert run is not None
        with run.task("simulate", number=number):
            pass
    return os.getpid()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_multiprocessing_child_writes_its_own_segment_of_the_same_run(recorded, method):
    context = multiprocessing.get_context(method)
    with recorded() as run:
        with flightlog.span("parent") as parent:
            children = [context.Process(target=work, args=(i,)) for i in range(3)]
            for child in children:
                child.start()
            for child in children:
                child.join()
        assert [child.exitcode for child in children] == [0, 0, 0]
    closed = Run(run.path)
    spans = [e for e in finished(closed) if e.name == "child"]
    assert sorted(e.tags["number"] for e in spans) == [0, 1, 2]
    assert {e.parent_id for e in spans} == {parent.span_id}
    (outer,) = [e for e in finished(closed) if e.name == "parent" and isinstance(e, SpanEvent)]
    assert all(
        outer.timestamp < e.timestamp < closed.info.end_time for e in spans
    )  # one clock for all processes
    assert len({e.writer for e in spans} - {run.info.writer}) == 3
    assert closed.info.tasks_completed == 3
    completeness = closed.completeness()
    assert (sum(completeness.lost.values()), completeness.doubled, completeness.torn) == (0, 0, 0)
    assert not (run.path / "segments").exists()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_pools_work_is_inside_the_span_that_handed_it_over(recorded, method):
    with recorded() as run, ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        with flightlog.span("first") as first:
            pids = {pool.submit(work, 1).result()}
        with flightlog.span("second") as second:
            pids |= set(pool.map(work, [2, 3]))
    assert os.getpid() not in pids
    parents = {e.tags["number"]: e.parent_id for e in finished(Run(run.path)) if e.name == "child"}
    assert parents == {1: first.span_id, 2: second.span_id, 3: second.span_id}


def step(part: int, number: int) -> int:
    with flightlog.span("step", part=part, number=number):
        return number


def parts_of(path: Path) -> list[tuple[int, int]]:
    return sorted((e.tags["part"], e.tags["number"]) for e in finished(Run(path)) if e.name == "step")


@contextmanager
def process_executor(method: str) -> Iterator[Callable[[Sequence[tuple[int, int]]], Any]]:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        list(pool.map(os.path.basename, "abcd"))  # its workers are there now
        yield lambda calls: list(pool.map(step, *zip(*calls, strict=True)))


@contextmanager
def process_pool(method: str, use: str) -> Iterator[Callable[[Sequence[tuple[int, int]]], Any]]:
    def each(pool: Any, calls: Sequence[tuple[int, int]]) -> list[int]:
        return [one.get() for one in [pool.apply_async(func=step, args=call) for call in calls]]

    ways: dict[str, Callable[[Any, Sequence[tuple[int, int]]], Any]] = {
        "starmap": lambda pool, calls: pool.starmap(step, calls),
        "apply_async": each,
        "imap": lambda pool, calls: list(pool.imap(_step_of, calls, chunksize=3)),
        "imap_unordered": lambda pool, calls: list(pool.imap_unordered(_step_of, calls)),
    }
    with multiprocessing.get_context(method).Pool(2) as pool:
        yield lambda calls: ways[use](pool, calls)
        pool.close()
        pool.join()


@contextmanager
def joblib_workers() -> Iterator[Callable[[Sequence[tuple[int, int]]], Any]]:
    from joblib import Parallel, delayed
    from joblib.externals.loky import get_reusable_executor

    try:
        yield lambda calls: Parallel(n_jobs=2)(delayed(step)(*call) for call in calls)
    finally:
        get_reusable_executor().shutdown(wait=True)


def _step_of(call: tuple[int, int]) -> int:
    return step(*call)


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param(joblib_workers, id="joblib"),
        pytest.param(partial(process_executor, "fork"), id="executor-fork"),
        pytest.param(partial(process_executor, "spawn"), id="executor-spawn"),
        *(
            pytest.param(partial(process_pool, "fork", use), id=f"pool-{use}")
            for use in ("starmap", "apply_async", "imap", "imap_unordered")
        ),
        pytest.param(partial(process_pool, "spawn", "starmap"), id="pool-spawn"),
    ],
)
def test_workers_that_are_older_than_a_run_or_serve_several_record_into_the_one_their_work_is_from(
    recorded, workers
):
    """What they do between two runs, and after the last one, is in none."""
    places = []
    with workers() as do:
        for part in (1, 2):
            with recorded() as run, flightlog.span("fit") as fit:
                do([(part, number) for number in range(20)])
            places.append((run.path, fit.span_id))
            do([(0, number) for number in range(20)])
    for part, (path, fit_id) in zip((1, 2), places, strict=True):
        run = open_run(path)
        assert parts_of(path) == [(part, number) for number in range(20)]
        assert {e.parent_id for e in finished(run) if e.name == "step"} == {fit_id}
        assert verify(run).ok


def step_in_a_thread(part: int) -> None:
    thread = threading.Thread(target=step, args=(part, 0))
    thread.start()
    thread.join()


def test_threads_of_work_from_outside_of_any_run_are_in_none(recorded):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        with recorded() as run:
            pool.submit(step_in_a_thread, 1).result()
        pool.submit(step_in_a_thread, 0).result()
    assert parts_of(run.path) == [(1, 0)]


NOT_IMPORTABLE = """
import multiprocessing, sys

def double(number):
    return 2 * number

if __name__ == "__main__":
    source = sys.argv[2]
    pool = multiprocessing.get_context("fork").Pool(1)
    sys.path.insert(0, source)
    import flightlog

    with flightlog.record("late", runs_dir=sys.argv[1]):
        print(pool.map_async(double, range(3)).get(timeout=60))
    pool.close()
    pool.join()
"""


def test_workers_that_cannot_import_the_recorder_do_their_work_all_the_same(tmp_path):
    """`-S` leaves out where it is installed; its dependencies come back with its source, after the fork."""
    (tmp_path / "program.py").write_text(NOT_IMPORTABLE)
    places = tmp_path / "places"
    places.mkdir()
    for module in (flightlog, msgspec, psutil):
        (places / module.__name__).symlink_to(Path(module.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-S", tmp_path / "program.py", tmp_path / "runs", places],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.returncode) == ("[0, 2, 4]\n", 0), done.stderr


def test_fork_in_the_middle_of_a_span_ends_it_once_in_the_parent_alone(recorded):
    for _ in range(5):
        with recorded() as run:
            with flightlog.span("outer") as outer, run.task("task"):
                pid = os.fork()
                if pid == 0:
                    with flightlog.span("in-child"):
                        pass
                else:
                    os.waitpid(pid, 0)
                    with flightlog.span("in-parent"):
                        pass
            if pid == 0:
                os._exit(0)
        closed = Run(run.path)
        names = sorted(e.name for e in finished(closed))
        assert names == ["in-child", "in-parent", "outer"]
        assert [type(e).__name__ for e in closed.events("tasks")] == [
            "TaskSubmitted",
            "TaskStarted",
            "TaskCompleted",
        ]
        by_name = {e.name: e for e in finished(closed)}
        assert by_name["in-child"].trace_id == outer.trace_id
        assert by_name["in-child"].parent_id == by_name["in-parent"].parent_id


def test_a_child_forked_while_samplers_load_can_import_what_they_do(tmp_path):
    """A child that is forked in the middle of an import waits for ever for the thread that it has no more."""
    slow = (
        "import builtins, time\nbuiltins.slow_one_begun.set()\ntime.sleep(0.3)\n"  # the fork comes meanwhile
    )
    (tmp_path / "slow_to_load.py").write_text(slow)
    program = """
        import builtins, os, signal, sys, threading
        builtins.slow_one_begun = threading.Event()
        from flightlog.record.background import Sampling
        def samplers():
            import slow_to_load
            return []
        sampling = Sampling(samplers, 1.0, print, print)
        assert builtins.slow_one_begun.wait(60)
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            import slow_to_load
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        sampling.stop()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("7\n", "")


def test_a_forked_child_that_only_exits_leaves_no_trace(recorded):
    with recorded() as run:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        with flightlog.span("parent"):
            pass
    assert [e.writer for e in finished(Run(run.path))] == [run.info.writer]


def test_a_forked_child_dies_of_sigterm_as_it_would_without_us(recorded):
    import signal
    import time

    with recorded() as run:
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(1)
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
    assert Run(run.path).status == "completed"


def test_a_subprocess_joins_by_its_environment_inside_the_span_that_started_it(recorded, spans_of):
    program = "import flightlog\nwith flightlog.span('sub', n=1): pass"
    with recorded() as run:
        with flightlog.span("launch"):
            subprocess.run([sys.executable, "-c", program], check=True)
    spans = spans_of(run)
    assert spans["sub"].parent_id == spans["launch"].span_id
    assert spans["sub"].writer != spans["launch"].writer


def test_a_subprocess_given_an_environment_of_its_own_gets_exactly_that(recorded):
    with recorded():
        out = subprocess.run(
            [sys.executable, "-c", "import os; print(sorted(k for k in os.environ if k != 'LC_CTYPE'))"],
            env={"ONLY": "this"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    assert out == "['ONLY']\n"


def test_a_child_that_outlives_the_run_is_left_alone_and_its_lines_are_read(recorded):
    program = (
        "import flightlog, sys\n"
        "with flightlog.span('early'): pass\n"
        "print('x', flush=True); sys.stdin.readline()\n"
        "with flightlog.span('late'): pass\n"
    )
    with recorded() as run:
        child = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
    assert child.stdin is not None
    child.communicate(b"\n", timeout=30)
    assert child.returncode == 0
    assert [e.name for e in finished(Run(run.path))] == ["early", "late"]
