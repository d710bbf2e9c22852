"""What goes wrong with workers, tasks and the program itself, and that the local engine takes it."""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

from flightlog.core.errors import UsageError
from flightlog.engines.local import LocalEngine
from flightlog.events import SpanEvent, WorkerLaunched, WorkerLost, WorkerReady, WorkerRemoved
from flightlog.record.context import carrier
from flightlog.record.span import span
from flightlog.store.run import Run
from flightlog.testing import tasks
from flightlog.testing.engines import PATIENCE_S, Reported, gate, make_work, recorded

MIB = 1 << 20


@contextmanager
def running(run_path=None, **options):
    engine, reported = LocalEngine(**{"max_workers": 1, "start_method": "forkserver", **options}), Reported()
    engine.start(run_path, reported)
    try:
        yield engine, reported
    finally:
        engine.close(timeout_s=0.0)


def submit(engine, function, *args, **options):
    work = make_work(function, *args, **options)
    engine.submit(work)
    return work


def result_of(outcome):
    assert outcome.end == "completed", outcome
    return pickle.loads(outcome.result)


def wait_for_end(pids) -> None:
    """Wait until processes that need not be children of ours are gone."""
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([fd], [], [], PATIENCE_S)[0], f"process {pid} is still there"
        finally:
            os.close(fd)


# --- tasks that do unusual things


def start_a_child_and_hold(pid_file: str, name: str) -> str:
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    Path(pid_file).write_text(f"{child.pid}\n")
    return tasks.hold(name)


def fork_and_return(code: int | None) -> int:
    """Fork a child that comes back from the function as well; gives how it ended."""
    pid = os.fork()
    if pid == 0:
        with span("in the forked child"):
            if code is not None:
                raise SystemExit(code)
            return -1
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fork_one_that_outlives(name: str) -> None:
    """End the process while a child of it lives on, which has all its descriptors."""
    if os.fork() == 0:
        tasks.hold(name)
        os._exit(0)
    os._exit(5)


def run_a_program() -> str:
    return subprocess.run(["echo", "hello"], check=True, capture_output=True, text=True).stdout


# --- processes


def test_a_task_deaf_to_sigterm_is_killed_after_the_grace(tmp_path):
    with gate(tmp_path) as name, running(kill_grace_s=0.05) as (engine, reported):
        work = submit(engine, tasks.ignore_sigterm_and_hold, name, timeout_s=0.2)
        assert reported.outcome(work).end == "timed_out"
        assert result_of(reported.outcome(submit(engine, tasks.add, 1))) == 1


def test_what_a_task_has_started_ends_with_it(tmp_path):
    with gate(tmp_path) as name, running() as (engine, reported):
        os.mkfifo(tmp_path / "pid")
        work = submit(engine, start_a_child_and_hold, str(tmp_path / "pid"), name)
        child = int((tmp_path / "pid").read_text())
        assert engine.cancel(work.task_id, "enough")
        assert reported.outcome(work).end == "cancelled"
        wait_for_end([child])


def test_an_attempt_waits_at_the_door_of_a_busy_worker_only_until_another_is_idle(tmp_path):
    with gate(tmp_path) as name, running(max_workers=2) as (engine, reported):
        holding = submit(engine, tasks.hold, name)
        busy = reported.wait_started(holding)
        quick = [submit(engine, tasks.who) for _ in range(50)]
        workers = {reported.outcome(work).worker for work in quick}
        assert len(workers) == 1
        assert busy not in workers


def test_attempts_at_a_door_are_work_that_further_workers_are_launched_for(tmp_path):
    with gate(tmp_path) as name, running(max_workers=6, start_method="fork") as (engine, reported):
        first = submit(engine, tasks.hold, name)
        reported.wait_started(first)
        works = [first, *(submit(engine, tasks.hold, name) for _ in range(5))]
        assert len({reported.wait_started(work) for work in works}) == 6


def test_the_attempt_at_the_door_of_a_worker_that_dies_is_given_to_another(tmp_path):
    with gate(tmp_path) as name, running() as (engine, reported):
        holding = submit(engine, tasks.hold, name)
        waiting = [submit(engine, tasks.add, number) for number in range(3)]
        reported.wait_started(holding)
        os.kill(engine.workers()[0].pid, signal.SIGKILL)
        assert reported.outcome(holding).end == "lost"
        assert [result_of(reported.outcome(work)) for work in waiting] == [0, 1, 2]
        assert [[r.kind for r in reported.of(work)] for work in waiting] == [
            ["queued", "started", "ended"]
        ] * 3


def test_a_worker_that_is_killed_while_idle_is_replaced(tmp_path):
    with running() as (engine, reported):
        first = result_of(reported.outcome(submit(engine, tasks.who)))
        os.kill(first, signal.SIGKILL)
        assert reported.wait_worker(WorkerLost).pid == first
        assert result_of(reported.outcome(submit(engine, tasks.who))) != first


def test_workers_are_killed_again_and_again_and_every_task_ends_once():
    with running(max_workers=2, start_method="fork") as (engine, reported):
        works = [
            submit(engine, tasks.kill_process if number % 10 == 0 else tasks.add, signal.SIGKILL)
            for number in range(100)
        ]
        ends = [reported.outcome(work).end for work in works]
        assert ends == ["lost" if number % 10 == 0 else "completed" for number in range(100)]
    assert Counter(r.task_id for r in reported.reports if r.kind == "ended") == {w.task_id: 1 for w in works}
    assert {(e.signal, e.reason) for e in reported.worker_events(WorkerLost)} == {
        ("SIGKILL", "its process was killed by SIGKILL")
    }


def test_large_arguments_and_results_go_both_ways():
    with running(max_workers=2) as (engine, reported):
        works = [submit(engine, tasks.echo, bytes([number]) * (number * MIB + number)) for number in range(4)]
        results = [result_of(reported.outcome(work)) for work in works]
        assert results == [bytes([number]) * (number * MIB + number) for number in range(4)]


def test_a_large_argument_does_not_wait_behind_a_busy_worker(tmp_path):
    with gate(tmp_path) as name, running(max_workers=2) as (engine, reported):
        holding = submit(engine, tasks.hold, name)
        reported.wait_started(holding)
        for _ in range(3):
            assert len(result_of(reported.outcome(submit(engine, tasks.echo, b"x" * MIB)))) == MIB


def test_the_peak_of_memory_is_each_tasks_own():
    with running() as (engine, reported):
        large, small = submit(engine, tasks.use, 0.0, 128 * MIB), submit(engine, tasks.nothing)
        peaks = [reported.outcome(work) for work in (large, small)]
    assert [peak.rss_scope for peak in peaks] == ["process", "process"]
    assert peaks[0].peak_rss_bytes - peaks[1].peak_rss_bytes > 100 * MIB


def test_a_child_that_a_task_forks_ends_where_the_task_ends(tmp_path):
    with recorded(tmp_path) as (run, path), running(path) as (engine, reported):
        works = [submit(engine, fork_and_return, code, place=carrier()) for code in (None, 0, 7)]
        assert [result_of(reported.outcome(work)) for work in works] == [0, 0, 7]
        assert result_of(reported.outcome(submit(engine, run_a_program))) == "hello\n"
        engine.close()
    spans = [e for e in Run(run).events("spans") if isinstance(e, SpanEvent)]
    assert [e.name for e in spans] == ["in the forked child"] * 3
    assert {e.parent_id for e in spans} == {work.span_id for work in works}
    completeness = Run(run).completeness()
    assert (sum(completeness.lost.values()), completeness.doubled, completeness.torn) == (0, 0, 0)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_process_that_outlives_its_worker_does_not_hide_the_workers_end(tmp_path, method):
    with gate(tmp_path) as name, running(start_method=method) as (engine, reported):
        outcome = reported.outcome(submit(engine, fork_one_that_outlives, name))
        assert (outcome.end, outcome.exit_code) == ("lost", 5)
        assert result_of(reported.outcome(submit(engine, tasks.add, 1))) == 1


def test_an_engine_whose_workers_cannot_start_says_so_and_takes_nothing(tmp_path):
    program = """
        engine, reported = LocalEngine(max_workers=1), Reported()
        engine.start(None, reported)
        works = [make_work(tasks.add, number) for number in range(3)]
        for work in works:
            engine.submit(work)
        for work in works:
            outcome = reported.outcome(work)
            print(outcome.end, outcome.reason)
        engine.close()
    """
    (tmp_path / "program.py").write_text(
        PRELUDE + dedented(program)
    )  # without a guard: each worker runs it again
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, timeout=PATIENCE_S
    )
    reason = "worker processes die before they are ready: its process ended with exit code 1"
    assert done.stdout == f"lost {reason}\n" * 3
    assert 'put what the program runs under `if __name__ == "__main__":`' in done.stderr


def test_a_backlog_of_100_000_is_closed_and_each_attempt_cancelled_once(tmp_path):
    with gate(tmp_path) as name, running(max_workers=2) as (engine, reported):
        holding = submit(engine, tasks.hold, name)
        reported.wait_started(holding)
        template = make_work(tasks.hold, name)
        ended = Counter()
        reported.queued = lambda *_facts: None
        reported.ended = lambda task_id, _attempt, outcome: ended.update([(task_id, outcome.end)])
        from msgspec.structs import replace

        for number in range(100_000):
            engine.submit(replace(template, task_id=f"backlog-{number}"))
        pids = [view.pid for view in engine.workers()]
        engine.close(timeout_s=0.0)
    assert ended.pop((holding.task_id, "cancelled")) == 1
    assert ended == {(f"backlog-{number}", "cancelled"): 1 for number in range(100_000)}
    wait_for_end(pids)
    assert not [thread for thread in threading.enumerate() if thread.name == "flightlog-engine"]


def test_closing_a_worker_that_is_still_starting_does_not_wait_for_it():
    with running(start_method="spawn") as (engine, reported):
        work = submit(engine, tasks.add, 1)
        reported.wait_worker(WorkerLaunched)
        engine.close(timeout_s=0.0)
        assert reported.outcome(work).end in ("cancelled", "completed")
    assert len(reported.worker_events(WorkerRemoved)) == 1


def test_the_threads_of_a_worker_process_are_workers_of_their_own(tmp_path):
    with gate(tmp_path) as name, running(threads_per_worker=2) as (engine, reported):
        works = [submit(engine, tasks.hold, name) for _ in range(2)]
        workers = {reported.wait_started(work) for work in works}
        (pid,) = {view.pid for view in engine.workers()}
        assert (
            workers
            == {view.worker for view in engine.workers()}
            == {f"{engine.workers()[0].host}:{pid}/thread-{number}" for number in (1, 2)}
        )
        assert engine.cancel(works[0].task_id, "no") is False
        os.kill(pid, signal.SIGKILL)
        assert [(reported.outcome(w).end, reported.outcome(w).signal) for w in works] == [
            ("lost", "SIGKILL")
        ] * 2


def test_a_timeout_beside_another_task_leaves_that_one_its_time(tmp_path):
    with gate(tmp_path) as name, running(threads_per_worker=2) as (engine, reported):
        os.mkfifo(tmp_path / "other")
        stuck, beside = (
            submit(engine, tasks.hold, name, timeout_s=0.2),
            submit(engine, tasks.hold, str(tmp_path / "other")),
        )
        assert reported.outcome(stuck).end == "timed_out"
        after = reported.outcome(submit(engine, tasks.who))
        (tmp_path / "other").write_text("on")
        ended = reported.outcome(beside)
        assert result_of(ended) == "on"
        assert ended.pid != after.pid
        wait_for_end([ended.pid])


# --- threads


def test_a_stuck_thread_is_written_off_said_so_and_replaced(tmp_path):
    with gate(tmp_path) as name, running(processes=False) as (engine, reported):
        work, after = submit(engine, tasks.hold, name, timeout_s=0.1), submit(engine, tasks.add, 1)
        outcome = reported.outcome(work)
        assert outcome.reason == (
            "hold ran over its timeout of 0.1 s; its thread cannot be ended and is written off"
        )
        assert reported.wait_worker(WorkerLost).worker == outcome.worker
        assert reported.outcome(after).worker != outcome.worker
        assert engine.cancel(work.task_id, "over") is False
    assert [len(reported.worker_events(kind)) for kind in (WorkerLaunched, WorkerReady, WorkerRemoved)] == [
        2,
        2,
        1,
    ]


def test_a_task_that_runs_in_a_thread_cannot_be_cancelled(tmp_path):
    with gate(tmp_path) as name, running(processes=False) as (engine, reported):
        work = submit(engine, tasks.hold, name)
        reported.wait_started(work)
        assert engine.cancel(work.task_id, "please") is False
        Path(name).write_text("done")
        assert result_of(reported.outcome(work)) == "done"


# --- the program itself

PRELUDE = """
import os, signal, sys, time
from flightlog.engines.local import LocalEngine
from flightlog.testing import tasks
from flightlog.testing.engines import Reported, make_work
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever this program was started from
"""


def dedented(program: str) -> str:
    import textwrap

    return textwrap.dedent(program)


def start(tmp_path: Path, program: str) -> subprocess.Popen[str]:
    import textwrap

    body = textwrap.indent(dedented(program), "    ")
    (tmp_path / "program.py").write_text(f"{PRELUDE}\nif __name__ == '__main__':\n{body}")
    return subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "gate")],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


HOLDING = """
engine, reported = LocalEngine(max_workers=2, start_method={method!r}), Reported()
engine.start(None, reported)
work, idle = make_work(tasks.hold, sys.argv[1]), make_work(tasks.add, 1)
engine.submit(work)
engine.submit(idle)
reported.wait_started(work)
reported.outcome(idle)
print(*[view.pid for view in engine.workers()], flush=True)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers_of_a_program_that_was_killed_end_by_themselves_busy_or_not(tmp_path, method):
    with gate(tmp_path):
        program = start(tmp_path, HOLDING.format(method=method) + "signal.pause()\n")
        pids = [int(pid) for pid in program.stdout.readline().split()]
        assert len(pids) == 2
        program.kill()
        program.communicate()
        wait_for_end(pids)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_program_that_forgets_to_close_its_engine_ends_all_the_same(tmp_path, method):
    with gate(tmp_path):
        program = start(tmp_path, HOLDING.format(method=method))
        out, err = program.communicate(timeout=PATIENCE_S)
        assert (program.returncode, err) == (0, "")
        wait_for_end([int(pid) for pid in out.split()])


def test_ctrl_c_reaches_the_program_and_not_its_workers(tmp_path):
    program = """
        engine, reported = LocalEngine(max_workers=1), Reported()
        engine.start(None, reported)
        work = make_work(tasks.hold, sys.argv[1])
        engine.submit(work)
        reported.wait_started(work)
        try:
            print(engine.workers()[0].pid, flush=True)
            while True:
                time.sleep(0.1)  # `pause` misses a signal that comes just before it
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        print(reported.outcome(work).end, flush=True)
        engine.close()
        print(*[type(event).__name__ for event in reported.worker_events()], flush=True)
    """
    with gate(tmp_path) as name:
        started = start(tmp_path, program)
        pid = int(started.stdout.readline())
        os.killpg(started.pid, signal.SIGINT)
        assert started.stdout.readline() == "interrupted\n"
        Path(name).write_text("go on")
        out, err = started.communicate(timeout=PATIENCE_S)
    assert (out, err) == ("completed\nWorkerLaunched WorkerReady WorkerRemoved\n", "")
    assert started.returncode == 0
    wait_for_end([pid])


def test_what_tasks_print_comes_out_and_the_programs_input_is_its_own(tmp_path):
    program = """
        engine, reported = LocalEngine(max_workers=1), Reported()
        engine.start(None, reported)
        work = make_work(print, "from a task", flush=True)
        engine.submit(work)
        reported.outcome(work)
        engine.close()
        print(sys.stdin.read())
    """
    out, err = start(tmp_path, program).communicate("from outside", timeout=PATIENCE_S)
    assert (out, err) == ("from a task\nfrom outside\n", "")


# --- asking for what makes no sense


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_workers": 0}, "max_workers is 0; it must be a whole number, 1 or more"),
        ({"threads_per_worker": True}, "threads_per_worker is True; it must be a whole number, 1 or more"),
        ({"start_method": "thread"}, "start_method is 'thread'; it may be spawn, forkserver, fork"),
        ({"kill_grace_s": -1}, "kill_grace_s is -1; it must be a number of seconds, 0 or more"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(UsageError) as caught:
        LocalEngine(**options)
    assert str(caught.value) == message


def test_an_engine_is_started_once_before_it_is_used():
    engine = LocalEngine()
    with pytest.raises(UsageError, match="has not been started"):
        engine.submit(make_work(tasks.nothing))
    engine.close()
    engine.start(None, Reported())
    with pytest.raises(UsageError, match="started already"):
        engine.start(None, Reported())
    engine.close()


def test_two_attempts_of_one_task_at_once_are_refused(tmp_path):
    with gate(tmp_path) as name, running() as (engine, _):
        work = submit(engine, tasks.hold, name)
        with pytest.raises(UsageError, match="has not ended yet"):
            submit(engine, tasks.hold, name, task_id=work.task_id, attempt=2)
