"""How sessions end that nobody closes in peace: killed, interrupted, left open, left with a backlog."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sessions import HEAD, PROCESSES, counts, session_in, summary_of
from work_for_sessions import add, leave

from flightlog.analyze.report.summary import summarize
from flightlog.engines.contract import Engine, Outcome, Reports, Work
from flightlog.engines.local import LocalEngine
from flightlog.store.run import Run

HERE = Path(__file__).parent


def start_program(folder: Path, body: str, *, guarded: bool = True) -> subprocess.Popen[str]:
    """A Python program that does this, beside a manifest; `guarded` against being imported by its workers."""
    (folder / "flightlog.yaml").write_text(HEAD + PROCESSES)
    program = folder / "program.py"
    head = (
        "import os, time\nimport work_for_sessions as work\nfrom flightlog.session.session import Session\n"
    )
    guard = "if __name__ == '__main__':\n" if guarded else "if True:\n"
    program.write_text(head + guard + "".join(f"    {line}\n" for line in body.splitlines()))
    environ = {**os.environ, "PYTHONPATH": str(HERE), "FLIGHTLOG_RUNS_DIR": str(folder / "runs")}
    return subprocess.Popen(
        [sys.executable, program],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it printed, and said, up to its end."""
    with process:
        try:
            return process.communicate(timeout=60)
        finally:
            process.kill()


def run_in(folder: Path) -> Run:
    [path] = (folder / "runs").iterdir()
    return Run(path)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


BUSY = """
session = Session.from_yaml()
with session:
    futures = session.client.map(work.add, range(5))
    session.client.gather(futures)
    session.client.submit(work.touch_and_wait, "runs-now", "never")
    session.client.map(work.add, range(100), task="behind")
    open("pids", "w").write(" ".join(str(w.pid) for w in session._engine.workers()))
    os.rename("pids", "workers")
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_session_that_is_killed_shows_what_was_in_flight_and_leaves_no_workers(tmp_path):
    process = start_program(tmp_path, BUSY)
    wait_for(tmp_path / "workers", process)
    wait_for(tmp_path / "runs-now", process)
    pids = [int(word) for word in (tmp_path / "workers").read_text().split()]
    assert len(pids) == 2
    process.kill()
    finish(process)
    summary = summarize(run_in(tmp_path))
    assert summary.run.status == "crashed"
    in_flight = [(task.task, task.args) for task in summary.tasks.in_flight]
    assert ("touch_and_wait", {"mark": "runs-now", "until": "never"}) in in_flight
    assert {name for name, _ in in_flight} <= {
        "touch_and_wait",
        "behind",
    }  # what the other worker was at, if anything
    by_name = summary.tasks.by_name
    assert (by_name["add"].completed, by_name["behind"].submitted) == (5, 100)
    ended = sum(getattr(summary.tasks, name) for name in ("completed", "failed", "cancelled"))
    assert ended + summary.tasks.running + summary.tasks.pending == summary.tasks.submitted == 106
    until = time.monotonic() + 30
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_ctrl_c_ends_a_session_as_interrupted_and_every_task_with_it(tmp_path):
    process = start_program(tmp_path, BUSY.replace("range(100)", "[1] * 3000"))
    wait_for(tmp_path / "workers", process)
    wait_for(tmp_path / "runs-now", process)
    process.send_signal(signal.SIGINT)
    _, errors = finish(process)
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    summary = summarize(run_in(tmp_path))
    assert summary.run.status == "interrupted"
    tasks = summary.tasks
    assert (tasks.submitted, tasks.completed + tasks.cancelled, tasks.running, tasks.pending) == (
        3006,
        3006,
        0,
        0,
    )
    assert tasks.by_name["touch_and_wait"].cancelled == 1


def test_a_program_in_a_loop_that_is_terminated_leaves_an_interrupted_run(tmp_path):
    body = """import asyncio
async def main():
    async with Session.from_yaml() as session:
        await session.client.submit(work.touch_and_wait, 'mark', 'never')
asyncio.run(main())"""
    process = start_program(tmp_path, body)
    wait_for(tmp_path / "mark", process)
    process.send_signal(signal.SIGTERM)
    finish(process)
    assert process.returncode == -signal.SIGTERM
    info = run_in(tmp_path).info
    assert (info.status, info.signal) == ("interrupted", "SIGTERM")


def test_a_session_that_is_open_when_its_program_ends_is_closed_as_completed(tmp_path):
    process = start_program(
        tmp_path, "session = Session.from_yaml()\nprint(session.client.submit(work.add, 1).result())"
    )
    assert finish(process) == ("2\n", "")
    summary = summarize(run_in(tmp_path))
    assert (summary.run.status, counts(summary)) == ("completed", {"submitted": 1, "completed": 1})


def test_a_session_that_is_open_when_its_program_fails_is_failed(tmp_path):
    process = start_program(
        tmp_path, "session = Session.from_yaml()\nsession.client\nraise LookupError('gone')"
    )
    _, errors = finish(process)
    assert "LookupError: gone" in errors
    info = run_in(tmp_path).info
    assert (info.status, info.error) == ("failed", "LookupError: gone")


def test_a_program_whose_session_is_not_guarded_is_told_what_to_do_and_makes_one_run(tmp_path):
    body = """
with Session.from_yaml() as session:
    print(type(session.client.submit(work.add, 1).exception()).__name__)
"""
    printed, said = finish(start_program(tmp_path, body, guarded=False))
    assert printed == "TaskError\n"
    assert 'put what the program runs under `if __name__ == "__main__":`' in said
    assert counts(summarize(run_in(tmp_path))) == {"submitted": 1, "failed": 1}


class Shelf:
    """An engine that keeps what it is given, until it is told to do it."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def start(self, run_path: str | None, reports: Reports) -> None:
        self.reports = reports

    def submit(self, work: Work) -> None:
        self.works.append(work)
        self.reports.queued(work.task_id, work.attempt)

    def cancel(self, task_id: str, reason: str) -> bool:
        return False

    def workers(self) -> list[object]:
        return []

    def close(self, timeout_s: float = 10.0) -> None:
        """Half of it is reported as it should be, the rest forgotten."""
        for work in self.works[::2]:
            self.reports.ended(work.task_id, work.attempt, Outcome(end="cancelled", reason="no time"))


def test_a_forked_child_leaves_the_session_of_its_parent_alone(tmp_path):
    body = """
with Session.from_yaml() as session:
    futures = [session.client.submit(work.touch_and_wait, f"began-{i}", "go-on") for i in range(3)]
    work.wait_for("began-0")
    child = os.fork()
    if child == 0:
        try:
            session.client.submit(work.add, 1)
        except Exception as error:
            print(type(error).__name__, session.client.cancel(futures[2]), flush=True)
        raise SystemExit(0)  # out of the block
    print(os.waitpid(child, 0)[1], flush=True)
    open("go-on", "w").close()
    print(session.client.gather(futures), session.client.submit(work.add, 1).result())
"""
    assert finish(start_program(tmp_path, body)) == ("UsageError False\n0\n[None, None, None] 2\n", "")
    run = run_in(tmp_path)
    assert run.info.status == "completed"
    assert counts(summarize(run)) == {"submitted": 4, "completed": 4}


def test_a_program_without_a_file_is_told_that_workers_cannot_import_it(tmp_path):
    (tmp_path / "flightlog.yaml").write_text(HEAD + PROCESSES)
    program = "from flightlog import Session\nwith Session.from_yaml() as session:\n    pass\n"
    done = subprocess.run(
        [sys.executable, "-"], input=program, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "there is no file <stdin>: save the program as a file, or use threads" in done.stderr


def test_a_function_that_was_typed_in_is_told_to_move_into_a_module(tmp_path):
    (tmp_path / "flightlog.yaml").write_text(HEAD + PROCESSES)
    program = (
        "from flightlog import Session\n\ndef typed(x):\n    return x\n\n"
        "with Session.from_yaml() as session:\n    print(session.client.submit(typed, 1).exception())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.endswith("Put it into a module and import that, or use threads (`processes: false`)\n")


def test_a_backlog_of_20_000_tasks_is_cancelled_each_once(tmp_path):
    from sessions import session_in
    from work_for_sessions import add

    engine: Engine = Shelf()  # type: ignore[assignment]
    with session_in(tmp_path, engine=engine) as session:
        futures = session.client.map(add, range(20_000))
    assert all(future.cancelled() for future in futures)
    assert counts(summary_of(session)) == {"submitted": 20_000, "cancelled": 20_000}
    assert Run(session.path).completeness().lost == {}


def test_what_is_reported_twice_or_late_counts_once(tmp_path):
    import pickle

    from sessions import session_in
    from work_for_sessions import add

    engine = Shelf()
    with session_in(tmp_path, engine=engine) as session:
        future = session.client.submit(add, 1)
        [work] = engine.works
        for result in (2, 3):
            engine.reports.ended(work.task_id, 1, Outcome(end="completed", result=pickle.dumps(result)))
        engine.reports.ended(work.task_id, 1, Outcome(end="lost"))
        engine.reports.ended("nobody", 1, Outcome(end="lost"))
        assert future.result() == 2
    assert counts(summary_of(session)) == {"submitted": 1, "completed": 1}


def test_a_result_that_cannot_be_read_here_fails_the_task(tmp_path):
    from sessions import session_in
    from work_for_sessions import add

    from flightlog.core.errors import TaskError

    engine = Shelf()
    with session_in(tmp_path, engine=engine) as session:
        future = session.client.submit(add, 1)
        engine.reports.ended(engine.works[0].task_id, 1, Outcome(end="completed", result=b"no pickle"))
        with pytest.raises(TaskError, match="the result of add cannot be unpickled here"):
            future.result()
    assert counts(summary_of(session)) == {"submitted": 1, "failed": 1}


def test_an_engine_that_refuses_a_task_fails_it(tmp_path):
    from sessions import session_in
    from work_for_sessions import add

    from flightlog.core.errors import TaskError

    class Full(Shelf):
        def submit(self, work: Work) -> None:
            raise OSError("too many")

    with session_in(tmp_path, engine=Full()) as session:
        with pytest.raises(TaskError, match="the engine refused it: too many"):
            session.client.submit(add, 1).result()
    assert counts(summary_of(session)) == {"submitted": 1, "failed": 1}


def test_tasks_that_wait_behind_ones_that_kill_their_worker_are_not_lost_with_it(tmp_path):
    with session_in(tmp_path, engine=LocalEngine(max_workers=1)) as session:
        client = session.client
        good = client.map(add, range(50))
        bad = [client.submit(leave, 1) for _ in range(5)]
        good += client.map(add, range(50, 80))
        assert client.gather(good) == [*range(1, 81)]
        assert [future.exception().error_type for future in bad] == 5 * ["WorkerLost"]
