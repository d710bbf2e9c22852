"""Whatever the program does, recording neither raises into it, nor hangs it, nor falsifies what it tells."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest
from builders.runs import finished, remove

import flightlog
from flightlog.record.background import Ticker
from flightlog.record.context import active_runs
from flightlog.store.run import Run


class Rude:
    """An object that raises from everything that may be asked of it."""

    def __str__(self):
        raise RuntimeError("no")

    __repr__ = __str__


def program(tmp_path: Path, body: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("FLIGHTLOG", "TRACEPARENT"))}
    return subprocess.run(
        [sys.executable, "-c", "import flightlog, os, signal, sys, threading, time\n" + body],
        env={**environ, "FLIGHTLOG_RUNS_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_nothing_that_is_handed_over_raises(recorded):
    with recorded() as run:
        run.event(Rude(), a=Rude())
        run.metric(Rude(), Rude())
        run.metric(None, 1)
        run.emit(None)
        run.subscribe(print, events=5)()
        run.record_artifact(Rude())
        with run.task(Rude(), x=Rude()) as task:
            task.tags = None
            task.metrics = 5
            task.set_status("error", Rude())
        with flightlog.span(Rude(), a=Rude()) as span:
            span.set_status("error", Rude())
            span.tags = span.metrics = None
        with (
            flightlog.attached({"traceparent": 5}),
            flightlog.attached([1]),
            flightlog.attached({"flightlog_run": "\0"}),
        ):
            pass
    assert Run(run.path).status == "completed"


def test_a_strange_runs_dir_lets_the_program_run():
    with flightlog.record("x", runs_dir=5) as run:
        run.metric("loss", 1.0)


def test_a_handler_set_inside_the_run_decides_how_the_program_ends(tmp_path):
    body = """
def handler(*_):
    time.sleep(2)
    print('clean done', flush=True)
    sys.exit(7)
with flightlog.record('x'):
    signal.signal(signal.SIGTERM, handler)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)
"""
    done = program(tmp_path, body)
    assert (done.returncode, done.stdout) == (7, "clean done\n")


def test_a_span_entered_inside_itself_neither_hangs_nor_is_its_own_parent(recorded):
    with recorded() as run:
        span = flightlog.span("s")

        def recurse(depth):
            with span:
                if depth:
                    recurse(depth - 1)

        recurse(3)
        with flightlog.span("after"):
            pass
    by_name = {e.name: e for e in finished(Run(run.path))}
    assert by_name["s"].parent_id == by_name["after"].parent_id == run.info.span_id


def test_a_span_used_again_begins_anew(recorded):
    with recorded() as run:
        span = flightlog.span("s")
        with contextlib.suppress(ValueError), span:
            span.metrics["x"] = 1
            raise ValueError
        with span:
            pass
    first, second = finished(Run(run.path))
    assert (first.status, first.metrics, second.status, second.metrics) == ("error", {"x": 1}, "ok", {})
    assert second.error_type is None


def test_a_thousand_open_spans_cost_no_recursion(recorded):
    with recorded() as run, contextlib.ExitStack() as stack:
        for _ in range(1500):
            stack.enter_context(flightlog.span("deep"))
        with run.task("t"):
            subprocess.run([sys.executable, "-c", "pass"], check=True)
        run.recorder.announce_open(ending=True)
    assert len(finished(Run(run.path))) == 1500


@pytest.mark.parametrize("hang", ["sampler", "subscriber", "async subscriber", "left open"])
def test_what_hangs_does_not_hold_up_the_end(tmp_path, hang):
    body = {
        "sampler": """
class Hung:
    def sample(self): time.sleep(60)
with flightlog.record('x', samplers=[Hung()]): pass
""",
        "subscriber": """
with flightlog.record('x') as run:
    for _ in range(4): run.subscribe(lambda e: time.sleep(60))
    run.metric('a', 1)
""",
        "async subscriber": """
import asyncio
async def callback(e): await asyncio.sleep(60)
with flightlog.record('x') as run:
    run.subscribe(callback); run.metric('a', 1)
""",
        "left open": """
async def callback(e): pass
recording = flightlog.record('x')
run = recording.__enter__()
run.subscribe(callback); run.metric('a', 1); time.sleep(0.3)
""",
    }[hang]
    done = program(tmp_path, body, timeout=20)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_a_fifo_is_an_artifact_that_is_not_read(recorded, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with recorded() as run:
        run.record_artifact(tmp_path / "pipe")
    (artifact,) = Run(run.path).events("artifacts")
    assert (artifact.size_bytes, artifact.sha256, "neither a file nor a folder" in artifact.error) == (
        None,
        None,
        True,
    )


def test_a_log_handler_that_records_does_not_deadlock(recorded):
    class Recording(logging.Handler):
        def emit(self, record):
            run.event("log", message=record.getMessage())

    log, handler = logging.getLogger("flightlog"), Recording()
    with recorded() as run:
        log.addHandler(handler)
        try:
            remove(run.path)
            for i in range(3000):
                with flightlog.span("work", i=i):
                    pass
            run.recorder.files.flush()
        finally:
            log.removeHandler(handler)
    assert len(finished(Run(run.path))) == 3000


def test_children_keep_what_was_put_into_the_environment_behind_pythons_back(tmp_path):
    body = """
import subprocess
with flightlog.record('x'):
    os.putenv('BEHIND', '1')
    print(subprocess.run('echo $BEHIND', shell=True, capture_output=True, text=True).stdout)
"""
    assert program(tmp_path, body).stdout.split() == ["1"]


def test_callables_and_threads_that_refuse_attributes_work_as_without_us(recorded):
    class Strict:
        def __getattr__(self, name):
            raise KeyError(name)

        def __call__(self):
            return 5

    class Closed(threading.Thread):
        ready = False

        def __setattr__(self, name, value):
            if self.ready and name.startswith("_flightlog"):
                raise RuntimeError(name)
            super().__setattr__(name, value)

    with recorded(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(Strict()).result() == 5
        thread = Closed(target=lambda: None)
        Closed.ready = True
        thread.start()
        thread.join()


def test_a_timeout_that_a_signal_handler_raises_reaches_the_program(recorded, monkeypatch):
    class Timeout(Exception):
        pass

    def handler(*_):
        raise Timeout

    before = signal.signal(signal.SIGALRM, handler)
    raised = 0
    ignored = []  # one that meets a finalizer is Python's to ignore
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    try:
        with recorded():
            for _ in range(60):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.002)
                    deadline = time.monotonic() + 5
                    while time.monotonic() < deadline:
                        with flightlog.span("work", i=1):
                            pass
                except Timeout:
                    raised += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert raised + len(ignored) == 60


def test_work_that_runs_after_its_run_has_closed_changes_nothing_in_it(recorded):
    gate = threading.Event()

    def late():
        gate.wait()
        with flightlog.span("late"):
            pass

    with ThreadPoolExecutor(1) as pool:
        with recorded() as run, run.task("t"):
            future = pool.submit(late)
        before = (run.path / "run.json").read_bytes()
        gate.set()
        future.result()
        with flightlog.span("outside"):
            pass
    assert (run.path / "run.json").read_bytes() == before
    assert (active_runs(), (run.path / "segments").exists(), finished(Run(run.path))) == ((), False, [])


def test_a_thread_that_outlives_its_run_does_not_record_into_the_next(recorded):
    gate = threading.Event()

    def work():
        gate.wait()
        with flightlog.span("from-the-first"):
            pass

    with recorded("first"):
        thread = threading.Thread(target=work)
        thread.start()
    with recorded("second") as second:
        gate.set()
        thread.join()
    assert finished(Run(second.path)) == []


def test_overlapping_runs_leave_the_environment_as_it_was(recorded):
    before = dict(os.environ)
    first, second = recorded("first"), recorded("second")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert os.environ["FLIGHTLOG_RUN"].endswith(tuple(str(run.path.name) for run in active_runs()))
    second.__exit__(None, None, None)
    assert dict(os.environ) == before


def test_a_start_that_fails_leaves_nothing_behind(recorded, monkeypatch, caplog):
    before = dict(os.environ), signal.getsignal(signal.SIGTERM)

    def no_thread(*_args, **_kwargs):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(import_module("flightlog.record.lifecycle"), "Ticker", no_thread)
    with recorded() as run:
        run.metric("loss", 1.0)
    assert (dict(os.environ), signal.getsignal(signal.SIGTERM), active_runs()) == (*before, ())


def test_what_fails_at_the_end_of_a_background_thread_is_a_trouble():
    def fail():
        raise OSError("gone")

    said = []
    ticker = Ticker("pulse", 60.0, lambda: None, lambda *told: said.append(told), finish=fail)
    ticker.stop(60.0)
    assert said == [("pulse", "pulse met OSError: gone at its end")]


def test_spans_open_when_the_run_closes_are_shown_as_open(recorded):
    gate, opened = threading.Event(), threading.Event()

    def work():
        with flightlog.span("still-open"):
            opened.set()
            gate.wait()

    with recorded() as run:
        thread = threading.Thread(target=work)
        thread.start()
        opened.wait()
    gate.set()
    thread.join()
    assert [type(e).__name__ for e in Run(run.path).events("spans")] == ["SpanOpened"]
    assert Run(run.path).writers()[0].counts["spans_open_at_close"] == 1


def test_a_generator_that_ends_elsewhere_keeps_the_parent_it_began_in(recorded, spans_of):
    @flightlog.span("gen")
    def gen():
        yield 1

    with recorded() as run:
        with flightlog.span("a"):
            it = gen()
            next(it)
        with flightlog.span("b"):
            list(it)
    spans = spans_of(run)
    assert spans["gen"].parent_id == spans["a"].span_id


def test_troubles_are_said_once_a_kind_and_bounded(recorded, caplog):
    with caplog.at_level(logging.WARNING, "flightlog"), recorded() as run:
        for i in range(5000):
            run.metric(f"loss-{i}", "no number")
    assert len(caplog.records) == 1
    assert len(Run(run.path).info.overhead["problems"]) == 1


def test_very_many_namespaces_share_files(recorded):
    from flightlog.events import define_event

    before = len(os.listdir("/proc/self/fd"))
    with recorded() as run:
        for i in range(200):
            run.emit(define_event(f"never_hurts_{i}.E", n=int)(n=i))
        assert len(os.listdir("/proc/self/fd")) - before < 120
    read = Run(run.path)
    streams = [s for s in read.streams() if s.startswith("user.")]
    assert sorted(e.n for s in streams for e in read.events(s)) == list(range(200))


def test_bare_decorators_take_the_functions_name(recorded, tmp_path, spans_of):
    @flightlog.span
    def work(x):
        return x + 1

    with recorded() as run:
        assert work(2) == 3
    assert [name.rpartition(".")[2] for name in spans_of(run)] == ["work"]


def test_a_pool_worker_leaves_each_run_that_ends(tmp_path):
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        paths = []
        for i in range(3):
            with flightlog.record("x", runs_dir=tmp_path, sample_interval_s=None) as run:
                pool.submit(_in_worker, i).result()
            paths.append(run.path)
        deadline = time.monotonic() + 30
        while any((p / "segments").exists() for p in paths) and time.monotonic() < deadline:
            time.sleep(0.05)
        while (threads := pool.submit(_threads).result()) and time.monotonic() < deadline:
            pass
    assert [e.tags["i"] for p in paths for e in finished(Run(p))] == [0, 1, 2]
    assert not any((p / "segments").exists() for p in paths)
    assert threads == []


def _in_worker(i):
    with flightlog.span("in-worker", i=i):
        pass


def _threads():
    return [t.name for t in threading.enumerate() if t.name == "flightlog-pulse"]
