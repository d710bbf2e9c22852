"""What of a run is paid for, gathered from what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING

from flightlog.analyze.artifacts import ArtifactTally
from flightlog.analyze.charging import Used
from flightlog.analyze.cost import LOCAL, CostSummary, CostTally
from flightlog.analyze.intervals import peak
from flightlog.analyze.moments import moment
from flightlog.analyze.rates import Sizes
from flightlog.analyze.resources import ResourceTally
from flightlog.analyze.workers import WorkerTally
from flightlog.events import CostEstimate, Event, JobEvent, JobStarted
from flightlog.store.liveness import latest

if TYPE_CHECKING:
    from flightlog.analyze.artifacts import ArtifactSummary
    from flightlog.analyze.cache import CacheSummary
    from flightlog.analyze.resources import ResourceSummary
    from flightlog.analyze.summary import RunFacts
    from flightlog.store.run import Run

Bounds = Mapping[str, tuple[int, int] | None]


def used_by(
    run: Run,
    facts: RunFacts,
    workers: WorkerTally,
    bounds: Bounds,
    *,
    resources: ResourceSummary,
    cache: CacheSummary,
    artifacts: ArtifactSummary,
) -> Used:
    """All of it. `bounds` has the first start and last end of each worker's tasks."""
    start, until = moment(facts.start_time), moment(facts.end_time or facts.last_seen)
    node = resources.node
    return Used(
        lifetimes=workers.lifetimes(bounds, until),
        components=workers.components(),
        given=_given(run, workers),
        wall_ns=None if start is None or until is None else max(0, until - start),
        ended=facts.end_time is not None,
        provider=facts.provider,
        told=_told(run),
        machine=machine_of(resources),
        energy_j=resources.energy.total_j if resources.energy is not None else None,
        artifact_bytes=_stored(artifacts),
        sent_bytes=node.sent_bytes if node is not None else None,
        saved_s=cache.saved_s,
    )


def _told(run: Run) -> bool:
    return CostEstimate.stream in run.streams()


def _stored(artifacts: ArtifactSummary) -> int | None:
    return artifacts.size_bytes if artifacts.count else 0


def machine_of(resources: ResourceSummary) -> Sizes:
    """What the largest host has; of CPUs and memory, what the control group may use of it."""
    node, cgroup, gpu = resources.node, resources.cgroup, resources.gpu
    limits = Sizes(cpus=cgroup.cpu_quota, memory_bytes=cgroup.memory_limit_bytes) if cgroup else Sizes()
    whole = Sizes(cpus=node.cpus, memory_bytes=node.memory_total_bytes) if node else Sizes()
    return Sizes(gpus=gpu.devices if gpu else None).else_(limits).else_(whole)


def _given(run: Run, workers: WorkerTally) -> dict[str, Sizes]:
    """What each worker was given: by itself, or by the batch job it lives in."""
    found = workers.given()
    for event in run.events(JobEvent.stream):
        if isinstance(event, JobStarted) and event.worker is not None:
            job = Sizes(cpus=event.cpus, memory_bytes=event.memory_bytes, gpus=event.gpus)
            found[event.worker] = found.get(event.worker, Sizes()).else_(job)
    return found


def workers_on_one_machine(run: Run) -> int:
    """How many workers shared the machine, at most: on the provider `local` all that were up at once,
    elsewhere 1.
    """
    if run.info.provider != LOCAL:
        return 1
    workers = WorkerTally()
    for event in run.events("workers"):
        if isinstance(event, Event):
            workers.add(event)
    until = moment(run.info.end_time or run.info.heartbeat)
    return max(1, peak(chain.from_iterable(workers.uptimes({}, until).values())))


def run_cost(run: Run) -> CostSummary:
    """What the summary of a run says of its cost, without the rest of it.

    A worker whose beginning was not recorded is the exception: the summary goes by its first task.
    """
    tally = CostTally()
    for event in run.events("cost"):
        if isinstance(event, Event):
            tally.add(event)
    ended = run.info.end_time is not None
    if tally.rates is None:
        return tally.summary(Used(provider=run.info.provider, told=_told(run), ended=ended))
    workers, resources, artifacts = WorkerTally(), ResourceTally(), ArtifactTally()
    for stream, into in (("workers", workers), ("resources", resources), ("artifacts", artifacts)):
        for event in run.events(stream):
            if isinstance(event, Event):
                into.add(event)
    end = run.info.end_time
    if end is None:
        beats = (run.info.heartbeat, *(writer.heartbeat for writer in run.writers()))
        end = latest(run.read().span()[1], *beats)
    until, sampled = moment(end), resources.summary()
    return tally.summary(
        Used(
            lifetimes=workers.lifetimes({}, until),
            components=workers.components(),
            given=_given(run, workers),
            ended=ended,
            provider=run.info.provider,
            told=_told(run),
            machine=machine_of(sampled),
            energy_j=sampled.energy.total_j if sampled.energy is not None else None,
            artifact_bytes=_stored(artifacts.summary()),
            sent_bytes=sampled.node.sent_bytes if sampled.node is not None else None,
        )
    )
