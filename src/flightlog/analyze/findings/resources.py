"""Resources that ran short: memory of hosts and control groups, device memory, and CPU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from flightlog.analyze.devices.report import REMEDIES, leak_text
from flightlog.analyze.findings.base import Finding, FindingFacts, cost_text
from flightlog.analyze.limits import FindingLimits
from flightlog.core.text import listed, plural
from flightlog.core.time import seconds
from flightlog.core.units import format_bytes, format_duration, format_percent

_FAILED = """
SELECT count(*), coalesce(sum(stopped - began), 0) FROM attempt_intervals
WHERE state = 'failed' AND began IS NOT NULL AND regexp_matches(error_type,
    '(^|\\.)(MemoryError|OutOfMemoryError)$')
"""


def memory_pressure(facts: FindingFacts) -> Iterable[Finding]:
    """Processes killed for memory, tasks that failed of it, and peaks of a host or cgroup beyond 95 %.

    The cost is that of the tasks that failed of it; null where only the signs are known.
    """
    node, cgroup = facts.summary.resources.node, facts.summary.resources.cgroup
    evidence: dict[str, Any] = {}
    said: list[str] = []
    if cgroup is not None and cgroup.oom_kills:
        evidence["oom_kills"] = cgroup.oom_kills
        said.append(f"the kernel killed {plural(cgroup.oom_kills, 'process', 'processes')} for memory")
    failed = ns = 0
    if facts.summary.tasks.failed or facts.summary.tasks.retried:
        [(failed, ns)] = facts.tables.execute(_FAILED).fetchall()
    if failed:
        evidence["tasks_out_of_memory"] = failed
        said.append(f"{plural(failed, 'task')} failed for lack of memory")
    for what, peak, total in (
        ("the run's memory limit", cgroup and cgroup.memory_peak_bytes, cgroup and cgroup.memory_limit_bytes),
        ("a host's memory", node and node.memory_peak_bytes, node and node.memory_total_bytes),
    ):
        if peak and total and peak >= FindingLimits.full_memory_share * total:
            evidence[f"{'limit' if 'limit' in what else 'host'}_peak_share"] = peak / total
            said.append(f"{format_percent(peak / total)} of {what} of {format_bytes(total)} was in use")
    if not said:
        return
    own = evidence.keys() != {"host_peak_share"} or _is_own_memory(facts)
    lost = seconds(int(ns)) if failed else None
    cost = (
        f"{cost_text(facts, lost)} went to tasks that ran out of memory, because "
        if lost
        else "Memory ran short: "
    )
    yield facts.finding(
        "memory_pressure",
        lost,
        f"{cost}{listed(said)}; try lower concurrency, or more memory for each task."
        if own
        else f"{HOST_RAN_SHORT}: {said[0]}.",
        evidence,
        where=list(node.hosts[:3]) if node is not None else [],
        certainty="measured" if own else "likely",
    )


HOST_RAN_SHORT = "The host ran short of memory, of which this run used little, or nobody knows how much"

_OWN_MEMORY = """
WITH own AS (
    SELECT host, sum(bytes) AS bytes FROM (
        SELECT host, max(rss_bytes) AS bytes FROM samples_of_run WHERE scope = 'worker' GROUP BY host, pid
    ) GROUP BY host
), hosts AS (
    SELECT host, max(memory_used_bytes) AS bytes FROM samples_of_run WHERE scope = 'node' GROUP BY host
)
SELECT max(own.bytes / nullif(hosts.bytes, 0)) FROM own JOIN hosts USING (host)
"""
_FAULTS = "SELECT max(major_faults) FROM attempt_intervals"


def _is_own_memory(facts: FindingFacts) -> bool:
    """Whether a host on which memory ran short had it in use for this run: half of it at least, or tasks
    waited for pages to be read.
    """
    share = facts.tables.scalar(_OWN_MEMORY)
    if share is not None and share >= FindingLimits.min_own_memory_share:
        return True
    return (facts.tables.scalar(_FAULTS) or 0) >= FindingLimits.min_major_faults


_PRESSURE = """
SELECT scope, max({column}) - min({column}) AS waited FROM samples_of_run
WHERE scope IN ('node', 'cgroup') AND {column} IS NOT NULL GROUP BY scope, host HAVING count(*) > 1
ORDER BY scope = 'cgroup' DESC, waited DESC LIMIT 1
"""
_SWAPPED = """
SELECT host, max(swap_used_bytes) - arg_min(swap_used_bytes, "timestamp") AS grown FROM samples_of_run
WHERE scope = 'node' GROUP BY host HAVING count(swap_used_bytes) > 1 ORDER BY grown DESC, host LIMIT 1
"""
_STORAGE = """
SELECT sum((coalesce(disk_read_bytes_per_s, 0) + coalesce(disk_write_bytes_per_s, 0)) * interval_s)
FROM samples_of_run
WHERE scope = 'node' AND coalesce(disk_read_bytes_per_s, disk_write_bytes_per_s) IS NOT NULL
"""


def _pressure(facts: FindingFacts, column: str) -> tuple[str, float] | None:
    """Whose threads waited, and for how many seconds at least one of them did: those of the run's own group
    where it is known, else those of the host.
    """
    row = facts.tables.execute(_PRESSURE.format(column=column)).fetchone()
    return None if row is None else (row[0], min(float(row[1]), facts.wall_s))


def swapping(facts: FindingFacts) -> Iterable[Finding]:
    """Memory that was moved to disk while the run went on, and the time that threads waited for memory. What
    is swapped out and not missed is no loss.
    """
    row = facts.tables.execute(_SWAPPED).fetchone()
    grown = int(row[1] or 0) if row is not None else 0
    pressure = _pressure(facts, "memory_pressure_s")
    waited = pressure[1] if pressure is not None else None
    long = waited is not None and waited >= FindingLimits.min_pressure_share * facts.wall_s > 0
    if not long and (waited is not None or grown < FindingLimits.min_swapped_bytes):
        return
    said = [f"{format_bytes(grown)} were moved to swap"] if grown >= FindingLimits.min_swapped_bytes else []
    if waited is not None and long:
        said.append(f"threads waited {format_duration(waited)} for memory to be freed")
    own = (pressure is not None and pressure[0] == "cgroup" and long) or _is_own_memory(facts)
    told = listed(said)
    yield facts.finding(
        "swapping",
        None,
        f"Memory ran short: {told}; try lower concurrency, or more memory."
        if own
        else f"{HOST_RAN_SHORT}: {told}.",
        {"swapped_bytes": grown, "memory_pressure_s": waited},
        where=[row[0]] if row is not None and row[0] else [],
        limits=waited / facts.wall_s if waited is not None and long and own else None,
        certainty="measured" if own else "likely",
    )


def io_wait(facts: FindingFacts) -> Iterable[Finding]:
    """Time in which something waited for storage, where this run moved most of what was moved there."""
    process, pressure = facts.summary.resources.process, _pressure(facts, "io_pressure_s")
    if pressure is None or process is None or not facts.wall_s:
        return
    whose, waited = pressure
    own = (process.read_bytes or 0) + (process.write_bytes or 0)
    everyone = facts.tables.scalar(_STORAGE)
    if (
        waited < FindingLimits.min_pressure_share * facts.wall_s
        or own < FindingLimits.min_storage_bytes
        or (whose == "node" and (everyone is None or own < 0.5 * everyone))
    ):
        return
    share = waited / facts.wall_s
    yield facts.finding(
        "io_wait",
        None,
        f"{format_duration(waited)}, {format_percent(share)} of the wall time, went to waiting for storage, "
        f"because this run read {format_bytes(process.read_bytes or 0)} and wrote "
        f"{format_bytes(process.write_bytes or 0)}; try reading and writing less, larger pieces at once, or "
        "faster storage.",
        {"io_pressure_s": waited, "read_bytes": process.read_bytes, "write_bytes": process.write_bytes},
        limits=share,
        certainty="measured" if whose == "cgroup" else "likely",
    )


_TIMES = {1: "once", 2: "twice"}


def device_memory(facts: FindingFacts) -> Iterable[Finding]:
    """That a device ran out of memory, how often, in what, and why; what it cost is not known."""
    outs = facts.devices.out_of_memory if facts.devices is not None else []
    if not outs:
        return
    phases = [name for name, _ in Counter(one.phase for one in outs if one.phase).most_common()]
    within = f", in {', '.join(f'`{name}`' for name in phases[:3])}" if phases else ""
    times = _TIMES.get(len(outs), f"{len(outs)} times or more")
    cause = outs[0].causes[0]
    because = cause.text.removesuffix(".")
    if len(outs) > 1:
        because = f"The first time: {because}"
    remedy = f"; try {REMEDIES[cause.kind]}." if REMEDIES[cause.kind] else "."
    yield facts.finding(
        "device_memory",
        None,
        f"Ran out of device memory {times}{within}. {because}{remedy}",
        {"bundles": [one.bundle for one in outs if one.bundle], "phases": phases, "cause": cause.kind},
        where=phases[:3],
    )


def device_leak(facts: FindingFacts) -> Iterable[Finding]:
    """Device memory that grows with each repetition of a phase and has not run out yet."""
    if facts.devices is None or facts.devices.out_of_memory:
        return
    leaking = [
        (max(leak.growth_bytes for leak in one.leaks) / one.capacity_bytes, one)
        for one in facts.devices.sessions
        if one.leaks and one.capacity_bytes
    ]
    share, session = max(leaking, key=lambda pair: pair[0], default=(0.0, None))
    text = leak_text(session) if session is not None else None
    if session is None or text is None or share < FindingLimits.min_leaked_share:
        return
    yield facts.finding(
        "device_leak",
        None,
        f"{'Host' if session.device_id < 0 else 'Device'} {text.removesuffix('.')}; try {REMEDIES['leak']}.",
        {"grew_share": share, "rank": session.rank},
        where=[leak.phase for leak in session.leaks[:3]],
    )


_COVERED = """
SELECT gpu_uuid, sum(interval_s) FROM samples_of_run
WHERE scope = 'gpu' AND interval_s IS NOT NULL GROUP BY ALL
"""


def idle_gpu(facts: FindingFacts) -> Iterable[Finding]:
    """GPUs that the run had memory on, and that were idle for much of the time."""
    gpu, wall_s = facts.summary.resources.gpu, facts.summary.run.duration_s
    if gpu is None or wall_s is None or wall_s < FindingLimits.min_gpu_run_s:
        return
    covered = dict(facts.tables.execute(_COVERED).fetchall())
    used = [
        (one, one.gpu_percent.mean / 100)
        for one in gpu.each
        if one.process_memory_peak_bytes
        and one.gpu_percent.mean is not None
        and covered.get(one.uuid, 0.0) >= FindingLimits.min_gpu_sampled_share * wall_s
    ]
    idle = [(one, busy) for one, busy in used if busy < FindingLimits.busy_gpu_share]
    if not idle:
        return
    share = 1 - sum(busy for _, busy in idle) / len(idle)
    if len(idle) < len(used):
        which = f"{len(idle)} of {len(used)} GPUs {'was' if len(idle) == 1 else 'were'}"
        remedy = "giving all of them work, or fewer GPUs"
    else:
        which = "The GPU was" if len(used) == 1 else f"The {len(used)} GPUs were"
        full = any(
            (one.memory_peak_bytes or 0)
            >= FindingLimits.full_gpu_memory_share * (one.memory_total_bytes or math.inf)
            for one, _ in idle
        )
        batches = "" if full else " larger batches,"
        remedy = f"preparing data ahead,{batches} or spans around the steps, to see what they wait for"
    found = facts.finding(
        "idle_gpu",
        share * wall_s,
        f"{which} idle {format_percent(share)} of the time; try {remedy}.",
        {"idle_share": share, "gpus": len(used)},
        where=[f"GPU {one.index} on {one.host}" for one, _ in idle[:3]],
    )
    yield replace(found, share=None, limits=None)  # what it would save depends on why it waits


SYMPTOMS = (device_memory, device_leak, idle_gpu, io_wait, memory_pressure, swapping)
