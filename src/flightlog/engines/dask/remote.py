"""What an engine asks of a Dask cluster, through a client of its own; answers come back as calls on the
engine's thread.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import lru_cache
from typing import Any, cast

import msgspec

from flightlog.engines.contract import Outcome
from flightlog.engines.dask.attempt import (
    Order,
    decode_job,
    encode,
    end_process,
    give_up,
    introduce,
    leave,
    relay_topic_of,
    run_attempt,
    topic_of,
)
from flightlog.engines.dask.began import read_began
from flightlog.engines.death import Death
from flightlog.engines.execute import Started
from flightlog.engines.ledger import Attempt
from flightlog.events import JobStarted

log = logging.getLogger("flightlog")

OWN_PREFIX = "flightlog-"
"""What the keys of our tasks begin with."""
LARGE_BYTES = 8_000_000
"""Dask warns of a little more than this in one message."""
DEATH_S = 3.0
"""How long to wait for word on what a worker died of."""
ANSWER_S = 5.0
"""How long a nanny or a worker may take to answer."""
SETTLE_S = 10.0
"""How long workers that do not see the run directory may take to send what they have recorded."""


@lru_cache(maxsize=1024)
def key_name(task: str) -> str:
    """A task's name in its key: letters, which Dask takes for the kind of task whose duration it learns and
    shows.
    """
    return re.sub(r"[^A-Za-z]+", "", task)[:40] or "task"


class Remote:
    """A client's cluster. Nothing here waits but `leave`; `say` takes a function and its arguments to the
    engine's thread.
    """

    def __init__(self, client: Any, engine: str, say: Callable[[tuple[Any, ...]], None]) -> None:
        self._client, self._engine, self._say = client, engine, say
        self.address: str = client.scheduler.address

    def submit(self, attempts: Sequence[Attempt], may_end: bool) -> Sequence[Any]:
        """A Dask future for each attempt, in their order; all are run before those that are submitted
        later.
        """
        import dask

        keys = [
            f"{OWN_PREFIX}{key_name(each.work.task)}-{self._engine}-{each.serial}-{each.mishaps}"
            for each in attempts
        ]
        works = [msgspec.structs.replace(each.work, args={}) for each in attempts]
        orders = [
            encode(Order(self._engine, each.serial, may_end, work))
            for each, work in zip(attempts, works, strict=True)
        ]
        options = {"key": keys, "pure": False, "retries": 0, "fifo_timeout": "0 ms"}
        # Dask's advice on large messages is for programs of its own.
        large = sum(map(len, orders)) > LARGE_BYTES
        with (
            dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"})
            if large
            else nullcontext()
        ):
            return cast("Sequence[Any]", self._client.map(run_attempt, orders, **options))

    def give_up(self, worker: str, serials: Sequence[int]) -> None:
        """Let a worker wait no more for these attempts."""
        self._later(self._give_up, worker, list(serials))

    def ask_for_job(self, worker: str) -> None:
        """Let a worker say which batch job it lives in."""
        self._later(self._ask_for_job, worker)

    def end_process(self, worker: str, grace_s: float, is_there: Callable[[str], bool]) -> None:
        """End a worker's process, and those below it; by its nanny, if it does not listen and is still there
        then.
        """
        self._later(self._end_process, worker, grace_s, is_there)

    def bring(self, attempt: Attempt, outcome: Outcome, then: Callable[[Attempt, Outcome], None]) -> None:
        """Fetch a result that waits on its worker."""
        self._later(self._bring, attempt, outcome, attempt.holder, then)

    def ask_why(self, attempt: Attempt, then: Callable[[Attempt, BaseException], None]) -> None:
        """Why Dask gave up on an attempt."""
        future: Any = attempt.holder
        future.add_done_callback(lambda done: self._say((then, attempt, _error_of(done))))

    def look_into(
        self,
        worker: str,
        nanny: str | None,
        death_of: Callable[[str], Death | None],
        then: Callable[[str, Death, dict[int, Started] | None], None],
    ) -> None:
        """What a worker died of, and what it had begun; None where nobody knows."""
        self._later(self._look_into, worker, nanny, death_of, then)

    def leave(self, land: Callable[[], object], on_job: Callable[[JobStarted], None]) -> None:
        """Take everything that was installed away again, as far as the cluster still answers.

        `land` waits for what workers sent home last, before nobody listens any more. `on_job` gets the batch
        jobs that workers live in.
        """

        def dismiss_workers() -> None:
            answers = self._client.run(leave, self._engine, SETTLE_S, on_error="ignore")
            for job in map(decode_job, answers.values()):
                if job is not None:
                    on_job(job)

        if self._client.status != "running":
            return  # nobody would answer
        for step in (
            dismiss_workers,
            land,
            lambda: self._client.unsubscribe_topic(topic_of(self._engine)),
            lambda: self._client.unsubscribe_topic(relay_topic_of(self._engine)),
            lambda: self._client.unregister_scheduler_plugin(f"flightlog-once-{self._engine}"),
        ):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - a cluster that is gone has nothing to be taken away from
                log.debug("leaving the Dask cluster: %s", error)

    # --- on the client's event loop

    def _later(self, function: Callable[..., Any], *args: Any) -> None:
        self._client.loop.add_callback(function, *args)

    async def _give_up(self, worker: str, serials: list[int]) -> None:
        with suppress(Exception):
            await self._client.run(give_up, self._engine, serials, workers=[worker], on_error="ignore")

    async def _ask_for_job(self, worker: str) -> None:
        with suppress(Exception):
            await self._client.run(introduce, self._engine, workers=[worker], on_error="ignore")

    async def _end_process(self, worker: str, grace_s: float, is_there: Callable[[str], bool]) -> None:
        with suppress(Exception):
            await self._client.run(end_process, grace_s, workers=[worker], wait=False, on_error="ignore")
        await asyncio.sleep(grace_s + ANSWER_S)
        with suppress(Exception):
            if is_there(worker):
                await self._client.restart_workers([worker], timeout=ANSWER_S, raise_for_error=False)

    async def _bring(
        self, attempt: Attempt, outcome: Outcome, future: Any, then: Callable[[Attempt, Outcome], None]
    ) -> None:
        try:
            outcome.result = await self._client.gather(future)
        except Exception as error:  # noqa: BLE001 - whatever came between
            outcome.end, outcome.reason = "lost", f"its result could not be fetched: {error}"
        self._say((then, attempt, outcome))

    async def _look_into(
        self,
        worker: str,
        nanny: str | None,
        death_of: Callable[[str], Death | None],
        then: Callable[[str, Death, dict[int, Started] | None], None],
    ) -> None:
        began = await self._ask_what_began(worker, nanny)
        death = death_of(worker)
        by = asyncio.get_running_loop().time() + DEATH_S
        while not _is_enough(death, nanny) and asyncio.get_running_loop().time() < by:
            await asyncio.sleep(0.02)
            death = death_of(worker)
        self._say((then, worker, death or Death("Dask lost its worker; nobody saw how it ended"), began))

    async def _ask_what_began(self, worker: str, nanny: str | None) -> dict[int, Started] | None:
        if nanny is None:
            return None
        call = {"function": pickle.dumps(read_began), "args": pickle.dumps((self._engine, worker))}
        try:
            answer = await asyncio.wait_for(self._client.rpc(nanny).run(**call), ANSWER_S)
            return answer["result"] if answer["status"] == "OK" else None
        except Exception as error:  # noqa: BLE001 - the nanny went with its worker
            log.debug("the nanny %s does not answer: %s", nanny, error)
            return None


def _is_enough(death: Death | None, nanny: str | None) -> bool:
    """Whether there is no more to be heard of an end: a nanny knows the exit code, and says it a moment
    later.
    """
    return death is not None and (nanny is None or death.exit_code is not None or death.signal is not None)


def _error_of(future: Any) -> BaseException:
    error: BaseException | None = future.exception() if future.status == "error" else None
    return error or RuntimeError(f"Dask says it is {future.status}")
