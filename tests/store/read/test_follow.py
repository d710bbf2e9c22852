"""A run is followed: every event of every process once, in order, from anywhere, as it happens."""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flightlog
from flightlog.cli.main import main
from flightlog.core.errors import UsageError
from flightlog.events import Metric, SpanEvent, UserEvent, define_event, kind_of
from flightlog.store import layout
from flightlog.store.limits import StoreLimits
from flightlog.store.read.follow import EventStream
from flightlog.store.run import Run
from flightlog.store.write.finalize import seal
from flightlog.store.write.writer import RunWriter, make_writer_info

Score = define_event("follow.Score", value=float)


def record(tmp_path: Path):
    return flightlog.record("follow", runs_dir=tmp_path, sample_interval_s=None)


def values(events) -> list[float | None]:
    return [event.value for event in events if isinstance(event, Metric)]


def line(number: int, writer: str = "w1", second: int = 0, **fields: object) -> bytes:
    event = UserEvent(
        timestamp=f"2026-05-20T03:52:{second:02}.000000Z",
        writer=writer,
        seq=number,
        name=f"{writer}-{number}",
        fields=fields,
    )
    return msgspec.json.encode(event) + b"\n"


def names(events) -> list[str]:
    return [event.name for event in events]


def going_on(path: Path, **options) -> EventStream:
    return EventStream(path, is_over=lambda: False, **options)


def test_a_run_that_goes_on_is_followed_to_its_end(tmp_path):
    seen: list[object] = []
    with record(tmp_path) as run:
        follower = threading.Thread(target=lambda: seen.extend(run.follow(events="metric")))
        follower.start()
        for number in range(1_000):
            run.metric("loss", number)
            if number % 100 == 0:
                time.sleep(0.01)
    follower.join(30)
    assert values(seen) == list(range(1_000))


def test_what_a_process_beside_records_is_given_within_half_a_second(tmp_path):
    body = (
        "import flightlog, sys\nrun = flightlog.current_run()\n"
        "for number in sys.stdin: run.metric('n', float(number))"
    )
    with record(tmp_path) as run:
        stream = run.follow(events=Metric)
        with subprocess.Popen([sys.executable, "-c", body], stdin=subprocess.PIPE, text=True) as child:
            assert child.stdin is not None
            for number in range(5):
                print(number, file=child.stdin, flush=True)
                assert next(stream).value == number
            child.stdin.close()


def test_an_ended_run_gives_what_it_holds_and_a_position_goes_on_behind_it_in_another_process(tmp_path):
    with record(tmp_path) as run:
        for number in range(100):
            run.metric("loss", number)
    stream = flightlog.open_run(run.path).follow(events=["metric"])
    first = [next(stream).value for _ in range(40)]
    body = (
        "import flightlog, sys\n"
        "print([e.value for e in flightlog.open_run(sys.argv[1]).follow(events='metric', since=sys.argv[2])])"
    )
    done = subprocess.run(
        [sys.executable, "-c", body, str(run.path), stream.position],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (first, done.stdout.strip()) == (list(range(40)), str([float(n) for n in range(40, 100)]))
    assert values(stream) == list(range(40, 100))


def test_from_now_gives_only_what_comes(tmp_path):
    with record(tmp_path) as run:
        for number in range(5_000):
            run.metric("loss", number)
        stream = run.follow(from_now=True)
        run.metric("loss", -1.0)
    assert values(stream) == [-1.0]
    assert list(Run(run.path).follow(from_now=True)) == []


@pytest.mark.parametrize(("look_s", "pause_s"), [(0.001, 0.3), (0.1, 2.0)])
def test_looks_that_take_long_are_rarer(tmp_path, look_s, pause_s):
    spent = count(step=look_s)
    stream = going_on(tmp_path, clock=lambda: 0.0, cpu_clock=lambda: next(spent))
    for _ in range(5):
        stream.look()
    assert stream.pause_s == pytest.approx(pause_s)


def test_kinds_that_are_added_come_from_then_on(tmp_path):
    with record(tmp_path) as run:
        run.metric("loss", 1.0)
        stream = going_on(run.path, events="span", from_now=True)
        stream.widen("metric")
        run.metric("loss", 2.0)
        assert values(stream.poll()) == [2.0]


def test_lines_are_in_order_and_a_missing_one_is_waited_for_a_moment(tmp_path):
    file, now = layout.stream_file(tmp_path, "events"), [0.0]
    stream = going_on(tmp_path, clock=lambda: now[0])
    file.write_bytes(line(0) + line(2) + line(3))
    assert (names(stream.poll()), stream.missing) == (["w1-0"], 0)
    with file.open("ab") as out:
        out.write(line(1) + line(5))
    assert names(stream.poll()) == ["w1-1", "w1-2", "w1-3"]
    now[0] = 0.5
    assert names(stream.poll()) == []
    now[0] = 2.0
    assert (names(stream.poll()), stream.missing) == (["w1-5"], 1)
    with file.open("ab") as out:
        out.write(line(4) + line(6))
    assert (names(stream.poll()), stream.missing) == (["w1-4", "w1-6"], 0)


@given(
    st.permutations(range(12)),
    st.lists(st.integers(0, 12), max_size=4),
    st.lists(st.sampled_from(["rotate", "fold", "resume"]), max_size=4),
)
def test_lines_in_any_order_come_once_and_in_order_whatever_happens_to_their_files(order, cuts, deeds):
    """As long as no line is waited for in vain."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        file = layout.stream_file(layout.writer_folder(run, "w1"), "events")
        file.parent.mkdir(parents=True)
        stream, seen = going_on(run, clock=lambda: 0.0), []
        ends = sorted({*cuts, 12})
        for number, (begin, end) in enumerate(pairwise([0, *ends])):
            with file.open("ab") as out:
                out.writelines(map(line, order[begin:end]))
            seen += names(stream.poll())
            deed = deeds[number] if number < len(deeds) else ""
            if deed == "rotate":
                file.rename(layout.rotated_file(file.parent, "events", number + 1))
            elif deed == "fold":
                with layout.stream_file(run, "events").open("ab") as out:
                    out.write(file.read_bytes() if file.exists() else b"")
                file.unlink(missing_ok=True)
            elif deed == "resume":
                stream = going_on(run, since=stream.position, clock=lambda: 0.0)
        seen += names(stream.poll())
        assert seen == [f"w1-{number}" for number in range(12)]
        assert stream.missing == 0


def test_what_was_written_between_two_looks_is_merged_by_time(tmp_path):
    for writer, seconds in (("w1", (1, 4, 5)), ("w2", (2, 3, 6))):
        file = layout.stream_file(layout.writer_folder(tmp_path, writer), "events")
        file.parent.mkdir(parents=True)
        file.write_bytes(b"".join(line(i, writer, second) for i, second in enumerate(seconds)))
    assert names(going_on(tmp_path).poll()) == ["w1-0", "w2-0", "w2-1", "w1-1", "w1-2", "w2-2"]


def test_events_are_given_once_while_files_are_rotated_closed_and_folded(tmp_path):
    stream, seen = going_on(tmp_path), []
    numbers = {}
    for owner in (True, False):
        info = make_writer_info(
            f"w{owner:d}", "here", owner=owner, started="2026-05-20T03:52:00.000000Z", anchor_ns=0
        )
        writer = RunWriter(tmp_path, info, rotate_bytes=20_000)
        out = writer.stream("events")
        for _ in range(2_000):
            number = out.number()
            text = line(number, info.writer)
            try:
                out.put(text)
            except ValueError:
                out.overflow(text)
            if number % 50 == 0:
                seen += stream.poll(37)
            if number % 300 == 0:
                writer.flush()
        writer.close()
        info.closed = True
        writer.save()
        numbers[info.writer] = list(range(2_000))
    seen += stream.poll(1_000)
    assert seal(tmp_path, writers_alive=lambda _writer: False) is None
    while more := stream.poll():
        seen += more
    assert {w: [e.seq for e in seen if e.writer == w] for w in numbers} == numbers
    assert len(list(tmp_path.glob("events*.jsonl"))) >= 1
    assert list(EventStream(tmp_path, since=stream.position)) == []


def test_a_killed_process_leaves_what_it_recorded_and_the_stream_ends(tmp_path):
    body = (
        "import flightlog, os, signal\n"
        f"with flightlog.record('follow', runs_dir={str(tmp_path)!r}, sample_interval_s=None) as run:\n"
        "    print(run.path, flush=True)\n"
        "    for number in range(3000): run.metric('n', number)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    with subprocess.Popen([sys.executable, "-c", body], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        stream = EventStream(Path(child.stdout.readline().strip()), events="metric")
        assert values(stream) == list(range(3_000))
    assert (child.returncode, stream.missing, stream.over) == (-signal.SIGKILL, 0, True)


def test_numbers_that_are_none_arrive(tmp_path):
    with record(tmp_path) as run:
        run.event(Score(value=math.inf))
        run.event(Score(value=math.nan))
        run.event(Score(value=-math.inf))
        run.metric("loss", math.nan)
    inf, nan, minus = run.follow(events="follow.Score")
    assert (inf.value, math.isnan(nan.value), minus.value) == (math.inf, True, -math.inf)
    [metric] = run.follow(events="metric")
    assert (metric.value, metric.nonfinite) == (None, "nan")


def test_events_are_frozen_and_can_be_recorded_and_pickled(tmp_path):
    with record(tmp_path) as run:
        with flightlog.span("work", step=1):
            pass
        [event] = run.follow(from_now=False, events="span").poll()
        with pytest.raises(AttributeError):
            event.name = "other"
        assert isinstance(event, SpanEvent)
        assert pickle.loads(pickle.dumps(event)) == event
        run.emit(event)
    assert [e.name for e in Run(run.path).events("spans")] == ["work", "work"]


def test_a_predicate_chooses(tmp_path):
    with record(tmp_path) as run:
        for number in range(10):
            run.metric("loss", number)
        with flightlog.span("work"):
            pass
    chosen = run.follow(where=lambda event: getattr(event, "value", 0) > 7)
    assert values(chosen) == [8, 9]


def test_coroutines_iterate_without_blocking_their_loop(tmp_path):
    async def follow() -> tuple[list[float | None], float]:
        with record(tmp_path) as run:
            for number in range(20_000):
                run.metric("loss", number)
        longest, seen = 0.0, []

        async def beat() -> None:
            nonlocal longest
            while True:
                before = time.perf_counter()
                await asyncio.sleep(0.001)
                longest = max(longest, time.perf_counter() - before)

        beating = asyncio.create_task(beat())
        async for event in flightlog.open_run(run.path).follow(events="metric"):
            seen.append(event.value)
        beating.cancel()
        return seen, longest

    seen, longest = asyncio.run(follow())
    assert seen == list(range(20_000))
    assert longest < 5


def test_coroutines_iterate_where_all_threads_of_their_loop_are_busy(tmp_path):
    async def follow() -> list[float | None]:
        with record(tmp_path) as run:
            run.metric("loss", 1.0)
        done, busy = threading.Event(), ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(busy)
        busy.submit(done.wait)
        try:
            return [event.value async for event in flightlog.open_run(run.path).follow(events="metric")]
        finally:
            done.set()

    assert asyncio.run(asyncio.wait_for(follow(), 60)) == [1.0]


def test_a_cancelled_iteration_goes_on_where_it_was(tmp_path):
    async def follow() -> list[float | None]:
        with record(tmp_path) as run:
            stream, seen = run.follow(events="metric"), []

            async def take() -> None:
                async for event in stream:
                    seen.append(event.value)

            for number in range(30):
                run.metric("loss", number)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(take(), 0.01)
        await take()
        return seen

    assert asyncio.run(follow()) == list(range(30))


def test_a_stream_that_comes_up_while_the_run_is_found_to_be_over_is_given(tmp_path):
    """As a refresh fetches it of a remote run, or a process writes it just before it ends."""
    layout.stream_file(tmp_path, "events").write_bytes(line(0))
    plain = line(0).replace(b'"w1"', b'""')

    def is_over() -> bool:
        layout.stream_file(tmp_path, "user.late").write_bytes(line(0, "late") + plain)
        return True

    assert names(EventStream(tmp_path, is_over=is_over)) == ["w1-0", "late-0", "w1-0"]


def test_what_is_held_back_is_given_where_the_run_is_deleted(tmp_path):
    gone, now = tmp_path / "run", [0.0]
    gone.mkdir()
    layout.stream_file(gone, "events").write_bytes(line(0) + line(2))
    stream = EventStream(gone, is_over=lambda: not gone.exists(), clock=lambda: now[0])
    assert names(stream.poll()) == ["w1-0"]
    layout.stream_file(gone, "events").unlink()
    gone.rmdir()
    assert names(stream) == ["w1-2"]


def test_what_a_look_finds_that_was_left_behind_by_a_cancelled_iteration_is_given(tmp_path):
    layout.stream_file(tmp_path, "events").write_bytes(line(0) + line(1))
    stream = EventStream(tmp_path, is_over=lambda: True)
    ask, asked = stream._next, []

    def ask_too_early():
        found = ask()
        if not asked:  # the look ends between the question and the check whether the run is over
            asked.append(stream.look())
        return found

    stream._next = ask_too_early
    assert names(stream) == ["w1-0", "w1-1"]


def test_lines_without_a_number_are_given_once_at_the_end_also_where_it_is_resumed(tmp_path):
    plain = b'{"event":"user_event","timestamp":"2026-05-20T03:52:00.000000Z","name":"n","fields":{}}\n'
    layout.stream_file(tmp_path, "events").write_bytes(line(0) + 3 * plain)
    stream = EventStream(tmp_path)
    assert [next(stream).name for _ in range(2)] == ["w1-0", "n"]
    assert names(EventStream(tmp_path, since=stream.position)) == ["n", "n"]
    assert names(stream) == ["n", "n"]


def test_events_that_this_process_does_not_know_are_given_as_they_are(tmp_path):
    body = (
        "import flightlog, os\nkind = flightlog.define_event('follow.Elsewhere', depth=(int, 3))\n"
        "flightlog.current_run().event(kind(depth=4))"
    )
    with record(tmp_path) as run:
        subprocess.run([sys.executable, "-c", body], check=True, env={**os.environ})
        [event] = run.follow(events="follow.Elsewhere").poll()
        assert (event.kind, event.data["depth"]) == ("follow.Elsewhere", 4)
        assert kind_of(define_event("follow.Elsewhere", depth=(int, 3))) == "follow.Elsewhere"


def test_what_a_run_tells_of_an_event_gives_way_to_a_definition_of_the_program(tmp_path):
    body = (
        "import flightlog\nkind = flightlog.define_event('follow.Told', depth=int)\n"
        "flightlog.current_run().event(kind(depth=4))"
    )
    with record(tmp_path) as run:
        subprocess.run([sys.executable, "-c", body], check=True)
    [told] = flightlog.open_run(run.path).follow(events="follow.Told")
    Told = define_event("follow.Told", depth=int, width=(int, 1))
    [event] = flightlog.open_run(run.path).follow(events="follow.Told")
    assert (told.depth, event.depth, event.width, isinstance(event, Told)) == (4, 4, 1, True)
    assert define_event("follow.Told", depth=int, width=(int, 1)) is Told
    with pytest.raises(UsageError, match="already defined"):
        define_event("follow.Told", depth=int)


def test_a_damaged_number_hides_nothing(tmp_path):
    numbers = (0, 1 << 60, 1, 999_999_999, 2)
    layout.stream_file(tmp_path, "events").write_bytes(b"".join(map(line, numbers)))
    stream = EventStream(tmp_path)
    assert sorted(event.seq for event in stream) == sorted(numbers)


def test_a_remote_run_is_followed_through_its_copy(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_REMOTE_CACHE", str(tmp_path / "copies"))
    with record(tmp_path / "runs") as run:
        for number in range(10):
            run.metric("loss", number)
    address = f"file://{tmp_path}/away"
    assert main(["sync", str(run.path), "--to", address]) == 0
    assert values(flightlog.open_run(f"{address}/{run.run_id}").follow(events="metric")) == list(range(10))


def test_a_remote_run_that_goes_on_is_asked_for_again_and_again(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_REMOTE_CACHE", str(tmp_path / "copies"))
    monkeypatch.setattr(StoreLimits, "remote_refresh_s", 0.05)
    address = f"file://{tmp_path}/away"
    with record(tmp_path / "runs") as run:
        for number in range(3):
            run.metric("loss", number)
            assert main(["sync", str(run.path), "--to", address]) == 0
            if number == 0:
                stream = flightlog.open_run(f"{address}/{run.run_id}").follow(events="metric")
            assert next(stream).value == number
    assert main(["sync", str(run.path), "--to", address]) == 0
    assert list(stream) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"events": "task_complete"}, "no event is called 'task_complete'. Did you mean 'task_completed'"),
        ({"since": "!"}, "that is no position in a run"),
        ({"since": "AAAA"}, "that is no position in a run"),
        ({"since": "", "from_now": True}, "give one of since and from_now"),
    ],
)
def test_what_cannot_be_followed_is_said(tmp_path, options, said):
    with pytest.raises(UsageError) as caught:
        EventStream(tmp_path, **options)
    assert said in str(caught.value)


def test_a_run_that_is_gone_has_no_events(tmp_path):
    assert list(EventStream(tmp_path / "gone")) == []
