"""Runs of many shapes, by a seed: tasks that fail and hang, workers, transfers, caches, samples, calibration
loops."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from builders.runs import at

from flightlog.events import (
    CacheLookup,
    Event,
    Failure,
    ResourceSample,
    SpanEvent,
    SpanOpened,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    WorkerLaunched,
    WorkerReady,
    WorkerRemoved,
)

NAMES = ("load", "sim", "sum")
ERRORS = (
    ("ValueError", "bad seed", "f1"),
    ("MemoryError", "no room\nat all", None),
    ("OSError", "gone", "f2"),
    ("OSError", "gone", None),
    ("lib.OutOfMemoryError", None, None),
)
REASONS = ("never seen", "arguments changed", "expired", "code changed", None)


class Shape:
    """The events of one run, in a second or forty; no two at one moment, so that their order is known."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self._ticks = 0
        self.crew = [f"w{n}" for n in range(self.dice.randrange(4))]

    def at(self, tenths: float) -> str:
        self._ticks += 1
        return at(tenths / 10 + self._ticks / 1e6)

    def events(self) -> list[Event]:
        dice = self.dice
        found: list[Event] = []
        slow = dice.random() < 0.5
        for n in range(dice.choice([0, 1, 4, 9, 16])):
            found += self.task(n, dice.choice([60, 90]) if slow and n % 7 == 5 else dice.randrange(1, 12))
        for worker in self.crew:
            found += self.worker(worker)
        if found:
            for makes in (self.cache, self.samples, self.loop, self.opened):
                if dice.random() < 0.5:
                    found += makes()
        if dice.random() < 0.2:
            found.append(self.failure("run", dice.choice(ERRORS), None, 1, None))
        return found

    def task(self, n: int, lasts: int) -> Iterator[Event]:
        dice = self.dice
        ids: dict[str, Any] = {"task": dice.choice(NAMES), "task_id": f"t{n}", "span_id": f"s{n}"}
        worker = dice.choice([*self.crew, None]) if dice.random() < 0.1 else dice.choice(self.crew or [None])
        moment, args = dice.randrange(200), {"n": n}
        yield TaskSubmitted(timestamp=self.at(moment), args=args, **ids)
        if dice.random() < 0.1:
            return
        for attempt in range(1, dice.choice([2, 2, 2, 3, 4])):
            moment += dice.randrange(15)
            ids["attempt"] = attempt
            yield TaskStarted(timestamp=self.at(moment), worker=worker, queue_s=None, **ids)
            state = dice.choice(["completed"] * 7 + ["failed", "cancelled", "running", "retried", "retried"])
            if state == "running":
                return
            moment += lasts
            error = dice.choice(ERRORS)
            if state in {"failed", "retried"} and dice.random() < 0.8:
                yield self.failure("task", error, ids, attempt, worker, moment)
            if state == "retried":
                yield TaskRetried(timestamp=self.at(moment), reason=f"{error[0]}: {error[1]}", **ids)
                continue
            more = {
                "timestamp": self.at(moment),
                "args": args,
                "worker": worker,
                **ids,
                "duration_s": lasts / 10 if dice.random() < 0.9 else None,
            }
            if state == "failed":
                yield TaskFailed(error_type=error[0], error_message=error[1], fingerprint=error[2], **more)
            elif state == "cancelled":
                yield TaskCancelled(**more)
            else:
                if dice.random() < 0.5:
                    more |= {
                        "cpu_s": lasts / dice.choice([10, 40]),
                        "cpu_scope": dice.choice(["thread", "process"]),
                    }
                size = dice.choice([None, 1000, 1 << 29])
                yield TaskCompleted(result_bytes=size, **more)
                if dice.random() < 0.2:
                    yield SpanEvent(
                        timestamp=self.at(moment - lasts),
                        name=dice.choice(["transfer", "data.serialize", "think"]),
                        span_id=f"x{n}",
                        parent_id=f"s{n}",
                        duration_s=lasts / 20,
                    )
            return

    def failure(
        self, scope: str, error: Any, ids: Any, attempt: int, worker: str | None, moment: int = 300
    ) -> Failure:
        task = {"task": ids["task"], "task_id": ids["task_id"], "attempt": attempt} if ids else {}
        return Failure(
            timestamp=self.at(moment),
            scope=scope,
            error_type=error[0],
            message=error[1],
            traceback=None,
            fingerprint=error[2],
            worker=worker,
            **task,
        )

    def worker(self, worker: str) -> Iterator[Event]:
        who: dict[str, Any] = {"worker": worker, "host": "n1", "pid": 1}
        moment = self.dice.randrange(30)
        if self.dice.random() < 0.5:
            yield WorkerLaunched(timestamp=self.at(moment), **who)
        if self.dice.random() < 0.8:
            moment += self.dice.randrange(60)
            yield WorkerReady(timestamp=self.at(moment), **who)
        if self.dice.random() < 0.8:
            yield WorkerRemoved(timestamp=self.at(moment + self.dice.randrange(400)), reason=None, **who)

    def cache(self) -> Iterator[Event]:
        for _ in range(self.dice.randrange(12)):
            result = self.dice.choice(["hit", "miss", "miss", "bypass"])
            yield CacheLookup(
                timestamp=self.at(self.dice.randrange(300)),
                task=self.dice.choice(NAMES),
                result=result,
                key=self.dice.choice(["k1", "k2", "k3", None]),
                task_id=self.dice.choice(["t1", "t2", "t3", "t4", None]),
                reason=self.dice.choice(REASONS) if result == "miss" else None,
                saved_s=self.dice.choice([0.5, 2.0, None]) if result == "hit" else None,
            )

    def samples(self) -> Iterator[Event]:
        used, held = self.dice.choice([50, 99]), self.dice.choice([0.0, 1.5])
        for n in range(self.dice.randrange(1, 6)):
            yield ResourceSample(
                timestamp=self.at(10 * n),
                scope="node",
                host=f"n{n % 2}",
                cpu_percent=self.dice.choice([85.0, 100.0]),
                interval_s=self.dice.choice([None, 0.5, 1.0]),
                memory_used_bytes=used + n % 2,
                memory_total_bytes=100,
            )
            yield ResourceSample(
                timestamp=self.at(10 * n),
                scope="cgroup",
                host="n1",
                cpu_percent=None,
                throttled_s=n * held,
                oom_kills=n // 3,
                memory_used_bytes=used,
                memory_total_bytes=100,
                cpus=self.dice.choice([None, 2.0]),
            )

    def loop(self) -> Iterator[Event]:
        dice = self.dice
        for job in range(dice.randrange(1, 3)):
            begun = moment = dice.randrange(50)
            for n in range(dice.randrange(1, 5)):
                one, since = f"j{job}i{n}", moment
                for phase in (
                    "algorithm.ask",
                    "simulation.submit_batch",
                    "simulation.gather",
                    "algorithm.tell",
                ):
                    lasted = dice.randrange(10)
                    metrics: dict[str, Any] = {"min_loss": dice.random()} if dice.random() < 0.5 else {}
                    metrics |= {"n_trials": dice.randrange(9)} if dice.random() < 0.5 else {}
                    if dice.random() < 0.8:
                        yield self.span(phase, f"{one}{phase}", one, moment, lasted, metrics=metrics)
                    moment += lasted
                tags = {"iteration": str(n)} if dice.random() < 0.5 else {}
                metrics = {"total_trials": 7, "min_loss": 0.5} if dice.random() < 0.3 else {}
                yield self.span(
                    "calibration.iteration",
                    one,
                    f"job{job}",
                    since,
                    moment - since + 1,
                    tags=tags,
                    metrics=metrics,
                )
            if dice.random() < 0.8:
                yield self.span(
                    "calibration.job", f"job{job}", None, begun, moment - begun, tags={"job_id": f"j{job}"}
                )

    def span(
        self, name: str, span_id: str, parent: str | None, since: int, lasted: int, **more: Any
    ) -> Event:
        if self.dice.random() < 0.1:
            return SpanOpened(
                timestamp=self.at(since),
                name=name,
                tags=more.get("tags", {}),
                trace_id="",
                span_id=span_id,
                parent_id=parent,
                elapsed_s=lasted / 10,
            )
        return SpanEvent(
            timestamp=self.at(since),
            name=name,
            span_id=span_id,
            parent_id=parent,
            duration_s=lasted / 10,
            **more,
        )

    def opened(self) -> Iterator[Event]:
        for n in range(self.dice.randrange(9)):
            yield SpanEvent(
                timestamp=self.at(n), name="walk", span_id=f"o{n}", duration_s=self.dice.randrange(20) / 10
            )
        for elapsed in (1.0, 2.0):
            yield SpanOpened(
                timestamp=at(20),
                name="walk",
                tags={"shard": elapsed},
                trace_id="",
                span_id="open",
                parent_id=None,
                elapsed_s=elapsed,
            )
