"""What signal handlers raise reaches the program, once, wherever it strikes, and leaves recording in
order."""

from __future__ import annotations

import functools
import gc
import opcode
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from builders.runs import finished
from hypothesis import given
from hypothesis import strategies as st

import flightlog
from flightlog.core import interruption
from flightlog.core.interruption import HandlersWait, is_interruption
from flightlog.record.context import active_runs
from flightlog.record.span import current
from flightlog.samplers.usage import UsageMeter
from flightlog.store.catalogue import list_runs
from flightlog.store.run import Run

HERE = Path(flightlog.__file__).parent
WAITING = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


class Late(Exception):
    """What a time-out raises."""


def raise_late(_number: int, _frame: FrameType | None) -> None:
    raise Late


@contextmanager
def handled_by(handler: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


CHECKED = {opcode.opmap[name] for name in ("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD")}
"""Behind these instructions, and at the beginning of functions, Python runs the handlers of signals."""


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Strike:
    """Sends the signal when this thread comes to the n-th place in our own code where Python runs handlers;
    counts them."""

    def __init__(self, at: int) -> None:
        self.at, self.met = at, 0
        self.ignored: list[
            object
        ] = []  # what strikes in a finalizer, or a generator that is dropped, is Python's to ignore

    def __enter__(self) -> Strike:
        sys.unraisablehook = self.ignored.append
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        sys.unraisablehook = sys.__unraisablehook__

    def lost(self) -> int:
        return sum(one.exc_type is Late for one in self.ignored)

    def _call(self, frame: FrameType, _event: str, _arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(str(HERE)):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        code = frame.f_code.co_code
        previous = -1

        def step(frame: FrameType, event: str, _arg: object) -> Any:
            nonlocal previous
            if event == "opcode":
                before, previous = previous, code[frame.f_lasti]
                if before in CHECKED:
                    self._meet()
            return step

        self._meet()
        return step

    def _meet(self) -> None:
        self.met += 1
        if self.met == self.at:
            signal.raise_signal(signal.SIGALRM)


def strike_everywhere(work: Callable[[], object], check: Callable[[int, bool], None], step: int = 1) -> int:
    """Do the work again and again, struck one line later each time, until it is through; gives how often it
    was struck."""
    struck = 0
    for at in range(1, 100_000, step):
        reached = False
        try:
            with Strike(at) as strike:
                work()
        except Late:
            reached = True
        assert reached + strike.lost() == (strike.met >= at), f"at place {at}"
        check(at, reached)
        if strike.met < at:
            return struck
        struck += 1
    raise AssertionError("it never comes to its end")


def test_at_every_line_of_a_span_it_is_raised_and_the_context_is_right_at_the_end_of_the_span_around_it(
    tmp_path,
):
    def work():
        with flightlog.span("outer"), flightlog.span("inner", size=1):
            pass

    def check(at: int, _reached: bool) -> None:
        around.pop().__exit__(None, None, None)
        assert current.get() is root, f"at place {at}"
        around.append(flightlog.span("around").__enter__())

    with flightlog.record("x", runs_dir=tmp_path, sample_interval_s=None) as run:
        root = current.get()
        work()
        around = [flightlog.span("around").__enter__()]
        with handled_by(raise_late):
            struck = strike_everywhere(work, check)
        around.pop().__exit__(None, None, None)
    read = Run(run.path)
    spans = [span for span in finished(read) if span.name == "around"]
    assert ({span.parent_id for span in spans}, len(spans)) == ({run.info.span_id}, struck + 2)
    assert (struck > 50, read.writers()[0].counts.get("events_failed")) == (True, None)


def test_spans_that_it_cuts_off_are_lost_with_that_reason(tmp_path):
    def work():
        with flightlog.span("work"):
            pass

    def check(at: int, _reached: bool) -> None:
        current.set(root)

    with flightlog.record("x", runs_dir=tmp_path, sample_interval_s=None) as run:
        root = current.get()
        work()
        with handled_by(raise_late):
            strike_everywhere(work, check)
    completeness = Run(run.path).completeness()
    lost = completeness.lost_lines
    assert (lost > 0, completeness.lost_text) == (
        True,
        f"{lost} lost: cut off by an exception of a signal handler",
    )


def test_at_every_line_of_a_task_it_is_raised_and_every_task_that_was_submitted_has_an_end(tmp_path):
    def work():
        with run.task("t", size=1):
            pass

    def check(at: int, reached: bool) -> None:
        current.set(root)

    with flightlog.record("x", runs_dir=tmp_path, sample_interval_s=None) as run:
        root = current.get()
        work()
        with handled_by(raise_late):
            struck = strike_everywhere(work, check, step=3)
    assert struck > 20
    ends = {"TaskCompleted", "TaskFailed", "TaskCancelled"}
    tasks = list(Run(run.path).events("tasks"))
    ended = [task.task_id for task in tasks if type(task).__name__ in ends]
    assert len(ended) == len(set(ended))
    gc.collect()
    meter = UsageMeter()
    meter.start()
    assert meter.stop().cpu_scope != "thread", "a task that was cut off still shares the process"


@pytest.mark.parametrize("what", ["event", "metric", "artifact", "failure"])
def test_at_every_line_of_what_else_is_recorded_it_is_raised(what, tmp_path):
    with flightlog.record("x", runs_dir=tmp_path, sample_interval_s=None) as run:
        work: dict[str, Callable[[], object]] = {
            "event": lambda: run.event("e", value=[1, {"a": object()}]),
            "metric": lambda: run.metric("m", 1.0),
            "artifact": lambda: run.record_artifact(__file__, about=5),
            "failure": lambda: run.note_failure(ValueError("no"), "run"),
        }
        here = current.get()
        work[what]()
        with handled_by(raise_late):
            struck = strike_everywhere(work[what], lambda _at, _reached: current.set(here), step=2)
    assert struck > 3


def test_what_a_handler_raises_in_the_middle_of_an_objects_code_reaches_the_program(tmp_path):
    class Slow:
        def __repr__(self) -> str:
            signal.raise_signal(signal.SIGALRM)
            return "Slow()"

        __float__ = __fspath__ = __repr__

    with flightlog.record("x", runs_dir=tmp_path, sample_interval_s=None) as run, handled_by(raise_late):
        uses: list[Callable[[], object]] = [
            lambda: run.event("e", value=Slow()),
            lambda: run.event(Slow()),
            lambda: run.metric("m", Slow()),
            lambda: run.record_artifact(Slow()),
            lambda: flightlog.span(Slow()),
            lambda: flightlog.record("y", runs_dir=tmp_path, tags={"a": Slow()}).__enter__(),
        ]
        for use in uses:
            with pytest.raises(Late):
                use()
        assert active_runs() == (run,)


class Handler:
    """Handlers of several kinds, of which each raises."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def method(self, _number: int, _frame: object) -> None:
        self.deeper()

    def __call__(self, *_args: object) -> None:
        self.deeper()

    def forgets(self, number: int, frame: object) -> None:
        del number, frame
        raise self.error

    def unregisters(self, number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise self.error

    def deeper(self) -> None:
        raise self.error


KINDS: list[Callable[[Handler], Any]] = [
    lambda handler: handler,
    lambda handler: handler.method,
    lambda handler: handler.forgets,
    lambda handler: handler.unregisters,
    lambda handler: functools.partial(handler.method),
    lambda handler: lambda *args: handler.method(*args),
    lambda handler: functools.wraps(handler.method)(lambda *, number=0, **_: None) and handler.method,
]
ERRORS = [Late, TimeoutError, SystemExit, KeyboardInterrupt, GeneratorExit, RecursionError]


class Deep:
    """An object whose text is made by other objects, of which the last raises by itself, or is struck."""

    def __init__(self, depth: int, last: Callable[[], object]) -> None:
        self.depth, self.last = depth, last

    def __repr__(self) -> str:
        if self.depth:
            return f"<{Deep(self.depth - 1, self.last)!r}>"
        return str(sorted([2, 1], key=lambda _: self.last()))


@given(
    st.sampled_from(KINDS), st.sampled_from(ERRORS), st.sampled_from(ERRORS), st.integers(0, 5), st.booleans()
)
def test_a_handlers_exceptions_are_told_from_an_objects(kind, of_handler, of_object, depth, struck):
    def last() -> object:
        if struck:
            signal.raise_signal(signal.SIGALRM)
        raise of_object

    with handled_by(kind(Handler(of_handler))):
        with pytest.raises(of_handler if struck else of_object) as raised:
            repr(Deep(depth, last))
        assert is_interruption(raised.value) is struck


def test_while_a_run_begins_or_ends_it_is_raised_once_and_the_run_is_begun_and_ended_or_was_never_there(
    tmp_path,
):
    def work():
        with flightlog.record("x", runs_dir=tmp_path, sample_interval_s=None):
            pass

    work()  # imports what it needs
    with handled_by(raise_late):
        with Strike(1_000_000_000) as whole:
            work()
        for at in range(1, whole.met, max(whole.met // 20, 1)):
            threads = threading.active_count()
            with pytest.raises(Late), Strike(at):
                work()
            assert (active_runs(), current.get()) == ((), None), f"at place {at}"
            assert signal.getsignal(signal.SIGALRM) is raise_late
            assert "FLIGHTLOG_RUN" not in os.environ
            wait_until(lambda: threading.active_count() <= threads)
    statuses = Counter(entry.status for entry in list_runs(tmp_path))
    assert set(statuses) <= {"completed", "failed"}
    assert statuses["completed"] >= 2


def test_a_timer_that_goes_off_while_runs_begin_and_end_always_reaches_the_program(tmp_path):
    reached = 0
    with handled_by(raise_late):
        for number in range(30):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001 + number * 0.0015)
                while True:
                    with flightlog.record("x", runs_dir=tmp_path, sample_interval_s=None):
                        pass
            except Late:
                reached += 1
    assert reached == 30


def test_handlers_wait_while_a_run_ends_and_are_called_in_order_for_each_signal(tmp_path):
    called: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _frame: called.append(number)) for number in WAITING
    }
    try:
        with HandlersWait():
            for number in WAITING:
                signal.raise_signal(number)
            assert called == []
        assert called == list(WAITING)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_handlers_that_waited_are_all_called_though_one_raises():
    called: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        called.append(number)
        raise Late(number)

    def work() -> None:
        with HandlersWait():
            for number in WAITING:
                signal.raise_signal(number)

    before = {number: signal.signal(number, note) for number in WAITING}
    try:
        with pytest.raises(Late) as raised:
            work()
        assert called == list(WAITING)
        assert raised.value.args == (WAITING[-1],)  # the others are its context
        assert all(signal.getsignal(number) is note for number in WAITING)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_child_forked_by_another_thread_while_handlers_wait_has_the_programs_handlers():
    found = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(signal.getsignal(signal.SIGALRM) is raise_late)
        found.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with handled_by(raise_late), HandlersWait():
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    assert found == [1]


@pytest.mark.skipif(sys.platform != "linux", reason="reads C's struct as it is on Linux")
def test_calls_that_go_on_after_a_handler_do_so_when_it_has_waited():
    def flags() -> bytes:
        return interruption._action(signal.SIGALRM)[136:140]  # behind the handler and 128 bytes of signals

    with handled_by(raise_late):
        signal.siginterrupt(signal.SIGALRM, False)
        before = flags()
        with HandlersWait():
            assert flags() != before
        assert flags() == before


def test_a_handler_written_in_c_is_left_alone(tmp_path):
    program = """
import faulthandler, flightlog, os, signal, sys
faulthandler.register(signal.SIGINT, file=sys.stdout, chain=False, all_threads=False)
with flightlog.record("x", runs_dir=sys.argv[1], sample_interval_s=None):
    signal.raise_signal(signal.SIGINT)
signal.raise_signal(signal.SIGINT)
print("survived")
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("survived\n")


def test_a_second_ctrl_c_does_not_wait():
    reached = []

    def work() -> None:
        with HandlersWait():
            signal.raise_signal(signal.SIGINT)
            reached.append(1)
            signal.raise_signal(signal.SIGINT)
            reached.append(2)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        signal.signal(signal.SIGINT, before)
    assert reached == [1]


def test_an_object_that_hands_a_frame_over_and_raises_is_no_signal_handler(tmp_path):
    def helper(_frame: FrameType) -> None:
        raise ValueError("an object's own")

    class Odd:
        def __repr__(self) -> str:
            helper(sys._getframe())
            return ""

    with flightlog.record("x", runs_dir=tmp_path, sample_interval_s=None) as run:
        with flightlog.span("step", odd=Odd()):
            pass
    assert [span.name for span in finished(Run(run.path))] == ["step"]
