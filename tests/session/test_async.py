"""A session in an event loop: nothing blocks the loop, and its futures are as good as those of asyncio."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any

import pytest
import work_for_sessions as work
from sessions import PROCESSES, THREADS, counts, events_of, run_of, session_in, summary_of

import flightlog
from flightlog.core.errors import UsageError
from flightlog.engines.local import LocalEngine
from flightlog.events import TaskCancelled, TaskSubmitted
from flightlog.session.asynchronous import LoopCalls, OwnThread, loop_calls
from flightlog.session.client import Client
from flightlog.session.session import Session


class SlowEngine(LocalEngine):
    """Takes its time to start and to close, as one on a cluster does."""

    def start(self, *args: Any) -> None:
        time.sleep(1.0)
        super().start(*args)

    def close(self, timeout_s: float = 10.0) -> None:
        time.sleep(1.0)
        super().close(timeout_s)


@asynccontextmanager
async def ticking(at_least: int) -> AsyncIterator[None]:
    """The loop goes on inside: it has so many turns 10 ms apart, a fraction of those there is time for."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticker = asyncio.create_task(tick())
    yield
    ticker.cancel()
    assert ticks >= at_least


def on(folder: Path, body: Any, where: str = THREADS, **options: Any) -> Session:
    """The session in which this ran, given the client."""

    async def main() -> Session:
        async with session_in(folder, where=where, **options) as session:
            await body(session.client)
        return session

    return asyncio.run(main())


def test_the_loop_goes_on_while_a_session_starts_and_closes(tmp_path):
    async def main() -> None:
        session = session_in(tmp_path, engine=SlowEngine(max_workers=1, processes=False))
        async with ticking(at_least=20):
            await session.astart()
        assert flightlog.current_run() is session.telemetry
        with flightlog.span("inside"):
            assert await session.client.submit(work.add, 1) == 2
        async with ticking(at_least=20):
            await session.aclose()
        assert flightlog.current_run() is None
        assert [event.name for event in run_of(session).events("spans")] == ["inside"]

    asyncio.run(main())


@pytest.mark.parametrize("where", [PROCESSES, THREADS])
def test_the_loop_goes_on_while_many_tasks_are_handed_over_and_gathered(tmp_path, where):
    async def many(client: Client) -> None:
        await client.submit(work.add, 0)
        async with ticking(at_least=5):
            futures = await client.amap(work.add, range(3000), b=2)
        async with ticking(at_least=2):
            assert await client.agather(futures) == list(range(2, 3002))
        assert {future async for future in client.as_completed(futures)} == {*futures}

    assert counts(summary_of(on(tmp_path, many, where))) == {"submitted": 3001, "completed": 3001}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_thread_that_starts_an_engine_lives_as_long_as_the_engine(tmp_path):
    """Processes of some systems, such as Ray, end with the thread that launched them."""
    seen: list[Any] = []

    class Watched(LocalEngine):
        def start(self, *args: Any) -> None:
            seen.append(Path(f"/proc/self/task/{threading.get_native_id()}"))
            super().start(*args)

        def close(self, timeout_s: float = 10.0) -> None:
            seen.append(seen[0].exists())
            super().close(timeout_s)

    async def body(client: Client) -> None:
        assert await client.submit(work.add, 1) == 2

    on(tmp_path, body, engine=Watched(max_workers=1, processes=False))
    assert seen[1]
    while seen[0].exists():  # it is let go, or the test takes too long
        time.sleep(0.01)


def test_a_session_whose_start_is_cancelled_is_closed(tmp_path):
    engine = SlowEngine(max_workers=1, processes=False)

    async def main() -> Session:
        session = session_in(tmp_path, engine=engine)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), session:
                raise AssertionError("not entered")
        assert flightlog.current_run() is None
        return session

    session = asyncio.run(main())
    assert session.seen().state == "closed"
    assert run_of(session).info.status == "interrupted"


def test_a_mistake_at_the_start_is_raised_in_the_coroutine(tmp_path):
    async def main() -> None:
        session = session_in(tmp_path)
        async with session:
            pass
        with pytest.raises(UsageError, match="closed"):
            await session.astart()

    asyncio.run(main())


def test_a_session_is_closed_although_all_threads_of_the_loop_wait_for_its_tasks(tmp_path):
    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        async with session_in(tmp_path) as session:
            future = session.client.submit(work.wait_for, str(tmp_path / "never"))
            waiting = asyncio.create_task(asyncio.to_thread(future.exception))
            await asyncio.sleep(0)
            raised = KeyError("to end it soon")
            await session.aclose(raised)
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())


def test_futures_come_as_they_are_done_in_for_and_async_for(tmp_path):
    async def body(client: Client) -> None:
        gate = tmp_path / "gate"
        held, quick = client.submit(work.wait_for, str(gate)), client.submit(work.add, 1)
        seen = []
        async for future in client.as_completed([held, quick, held]):
            seen.append(future)
            gate.touch()
        assert seen == [quick, held]
        assert {*client.as_completed(seen)} == {held, quick}
        assert [future async for future in client.as_completed([])] == []
        gate.unlink()
        held = client.submit(work.wait_for, str(gate))
        both = client.as_completed([held, quick], timeout=0.05)
        with pytest.raises(TimeoutError, match=r"1 \(of 2\) futures unfinished"):
            assert [future async for future in both] == [quick]
        gate.touch()
        await held
        assert [one async for one in client.as_completed([held, quick], timeout=0)] == [held, quick]

    on(tmp_path, body)


def test_asyncio_waits_for_tasks_as_for_futures_of_its_own(tmp_path):
    async def body(client: Client) -> None:
        gate = tmp_path / "gate"
        held, quick = client.submit(work.wait_for, str(gate)), client.submit(work.add, 1)
        assert await asyncio.wait([held, quick], return_when=asyncio.FIRST_COMPLETED) == ({quick}, {held})
        assert await asyncio.wait([held], timeout=0.01) == (set(), {held})
        failing = client.submit(work.fail, "waited for")
        assert await asyncio.wait([held, failing], return_when=asyncio.FIRST_EXCEPTION) == ({failing}, {held})
        gate.touch()
        assert await asyncio.wait([held, quick, failing]) == ({held, quick, failing}, set())
        assert await asyncio.gather(held, quick) == [str(gate), 2]
        assert [await one for one in asyncio.as_completed([quick])] == [2]

    on(tmp_path, body)


def test_a_task_group_that_fails_cancels_its_tasks(tmp_path):
    async def body(client: Client) -> None:
        async def run(function: Any, *args: Any) -> Any:
            return await client.submit(function, *args)

        async def together() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(run(work.wait_for, str(tmp_path / "never")))
                group.create_task(run(work.fail, "in the group"))

        with pytest.raises(ExceptionGroup) as caught:
            await together()
        assert [type(error) for error in caught.value.exceptions] == [ValueError]

    session = on(tmp_path, body, PROCESSES)
    assert [event.task for event in events_of(session, "tasks", TaskCancelled)] == ["wait_for"]


def test_what_is_shielded_goes_on_when_its_coroutine_is_cancelled(tmp_path):
    async def body(client: Client) -> None:
        gate = tmp_path / "gate"
        future = client.submit(work.wait_for, str(gate))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.shield(future)
        gate.touch()
        assert await future == str(gate)

    on(tmp_path, body, PROCESSES)


def test_a_task_that_is_cancelled_cancels_who_awaits_it(tmp_path):
    async def body(client: Client) -> None:
        future = client.submit(work.wait_for, str(tmp_path / "never"))
        asyncio.get_running_loop().call_later(0.05, client.cancel, future)
        with pytest.raises(asyncio.CancelledError):
            await future
        with pytest.raises(asyncio.CancelledError):
            await future

    on(tmp_path, body, PROCESSES)


def test_gathering_in_a_loop_treats_errors_as_gather_does(tmp_path):
    async def body(client: Client) -> None:
        good, bad = client.submit(work.add, 1), client.submit(work.fail, "gathered")
        with pytest.raises(ValueError, match="gathered"):
            await client.agather([good, bad])
        two, error = await client.agather([good, bad], errors="return")
        assert (two, type(error)) == (2, ValueError)
        assert await client.agather([]) == []
        with pytest.raises(UsageError, match="neither"):
            await client.agather([good], errors="ignore")  # type: ignore[arg-type]

    on(tmp_path, body)


@pytest.mark.parametrize("errors", ["raise", "return"])
def test_the_loop_goes_on_while_tasks_before_one_that_failed_are_gathered(tmp_path, errors):
    async def body(client: Client) -> None:
        gate, turns = tmp_path / "gate", []
        held, failing = client.submit(work.wait_for, str(gate)), client.submit(work.fail, "before the other")
        await asyncio.wait([failing])
        with pytest.raises(ValueError, match="before the other"):
            await client.agather([failing, held])  # what comes after it is not waited for

        def open_gate() -> None:
            turns.append("of the loop")
            gate.touch()

        asyncio.get_running_loop().call_later(0.05, open_gate)
        otherwise = threading.Timer(5, gate.touch)
        otherwise.start()
        try:
            assert await client.agather([held, failing], errors) == [str(gate), failing.exception(0)]
        except ValueError:
            assert errors == "raise"
        otherwise.cancel()
        assert turns == ["of the loop"]

    on(tmp_path, body)


@pytest.mark.parametrize("cut_off", ["agather", "amap"])
def test_who_is_cancelled_while_it_gathers_or_maps_cancels_the_tasks(tmp_path, cut_off):
    async def body(client: Client) -> None:
        def arguments() -> Any:
            yield from 200 * [str(tmp_path / "never")]
            if cut_off == "amap":
                task.cancel()
                time.sleep(0.01)  # longer than a slice
                yield from 200 * [str(tmp_path / "never")]

        async def both() -> None:
            await client.agather(await client.amap(work.wait_for, arguments()))

        task = asyncio.create_task(both())
        if cut_off == "agather":
            asyncio.get_running_loop().call_later(0.3, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    session = on(tmp_path, body, PROCESSES)
    submitted = {event.task_id for event in events_of(session, "tasks", TaskSubmitted)}
    reasons = {e.task_id: e.reason for e in events_of(session, "tasks", TaskCancelled)}
    assert len(submitted) >= 200
    assert reasons == dict.fromkeys(submitted, "cancelled by the program")


def test_a_mapping_with_a_key_that_cannot_be_made_can_be_made_again(tmp_path):
    async def body(client: Client) -> None:
        with pytest.raises(UsageError, match="cannot be sent"):
            await client.amap(work.give, [*range(40), lambda: None], key="mine")
        futures = await client.amap(work.give, range(3), key="mine")
        assert [future.task_id for future in futures] == ["mine[0]", "mine[1]", "mine[2]"]
        assert await client.agather(futures) == [0, 1, 2]

    on(tmp_path, body)


def test_ends_that_come_together_wake_a_loop_once():
    woken: list[Any] = []

    class Loop:
        def call_soon_threadsafe(self, call: Any) -> None:
            woken.append(call)

    calls, seen = LoopCalls(Loop()), []  # type: ignore[arg-type]
    for number in range(1000):
        calls.post(seen.append, number)
    assert len(woken) == 1
    while len(seen) < 1000:
        woken.pop()()
    calls.post(seen.append, 1000)
    assert len(woken) == 1


def test_a_loop_that_is_closed_is_freed():
    async def main() -> weakref.ref[asyncio.AbstractEventLoop]:
        assert loop_calls() is loop_calls()
        loop_calls().post(seen.append, "posted")
        await asyncio.sleep(0)
        return weakref.ref(asyncio.get_running_loop())

    seen: list[str] = []
    loop = asyncio.run(main())
    gc.collect()
    assert loop() is None
    assert seen == ["posted"]


def test_a_call_on_a_thread_changes_no_variable_that_it_did_not_set():
    ours, theirs = ContextVar("ours", default="unset"), ContextVar("theirs", default="unset")
    theirs.set("before")
    started, other_is_over = threading.Event(), threading.Event()

    def call() -> None:
        started.set()
        ours.set("by the call")
        assert other_is_over.wait(60)

    async def other() -> None:
        while not started.is_set():
            await asyncio.sleep(0.001)
        theirs.set("by another task")
        other_is_over.set()

    async def main() -> None:
        shared, thread = copy_context(), OwnThread()
        tasks = [asyncio.create_task(one, context=shared) for one in (thread.run(call), other())]
        await asyncio.gather(*tasks)
        thread.end()
        assert (shared[ours], shared[theirs]) == ("by the call", "by another task")

    copy_context().run(asyncio.run, main())


def test_callbacks_of_the_program_are_called_without_the_loop(tmp_path):
    async def body(client: Client) -> None:
        gate, told = tmp_path / "gate", threading.Event()
        future = client.submit(work.wait_for, str(gate))
        future.add_done_callback(lambda _: told.set())
        unheard: list[Any] = []
        future.add_done_callback(unheard.append)
        assert future.remove_done_callback(unheard.append) == 1
        gate.touch()
        assert told.wait(60)  # blocks the loop
        assert unheard == []

    on(tmp_path, body)


def test_signals_are_as_before_after_a_session_in_a_loop(tmp_path):
    before = signal.getsignal(signal.SIGTERM)

    async def body(_client: Client) -> None:
        assert (signal.getsignal(signal.SIGTERM) is signal.SIG_DFL) == (before is not signal.SIG_DFL)

    on(tmp_path, body)
    assert signal.getsignal(signal.SIGTERM) is before
