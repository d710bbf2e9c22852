"""The host, the job or a limit had no more memory to give."""

from __future__ import annotations

from collections.abc import Iterator

from flightlog.analyze.diagnosis.base import Case, RunFacts, Sign, Source
from flightlog.analyze.diagnosis.matchers import (
    Clues,
    ended,
    errno,
    job_state,
    named,
    raised,
    recorded,
    reports,
    says,
)
from flightlog.analyze.history.attempts import MORE_THAN_KILLED
from flightlog.core.units import format_bytes

_DEVICE = (
    r"\b(?:cuda|gpu|hip|rocm|hbm|xpu|mps|cudnn|cublas|nccl|device|accelerator|vram|torch\.OutOfMemory)"
    "|OOM when allocating tensor|RESOURCE_EXHAUSTED|jaxlib"
)


FULL, ROOMY = 0.9, 0.5
"""Memory beyond the first part of its limit leaves no room; below the second it was not the matter."""


def _facts(facts: RunFacts) -> Iterator[Sign]:
    reason, limit, node = (
        facts.worker_lost_reason or "",
        facts.memory_limit_bytes,
        facts.node_memory_used_percent,
    )
    blamed = facts.kernel_oom or facts.cgroup_oom_kills or facts.job_state == "OUT_OF_MEMORY"
    if facts.kernel_oom:
        yield Sign(source=Source.kernel, weight=6, text="the kernel killed for memory at that moment")
    if kills := facts.cgroup_oom_kills:
        yield Sign(source=Source.kernel, weight=6, text=f"the cgroup counts {kills} kills for memory")
    if "for memory" in reason:  # an engine's own watch over its workers
        yield Sign(source=Source.scheduler, weight=5, text=reason)
    known = [one for one in (facts.last_rss_bytes, facts.peak_rss_bytes) if one is not None]
    used = f"{format_bytes(max(known, default=None))} of {format_bytes(limit)}"
    share = max(known) / limit if known and limit else None
    if share is not None and share >= FULL:
        yield Sign(
            source=Source.resources, weight=4 if facts.was_killed else 2, text=f"memory stood at {used}"
        )
        if (slope := facts.memory_slope_bytes_per_s) and slope > 0:
            text = f"memory was climbing by {format_bytes(int(slope))} a second"
            yield Sign(source=Source.resources, weight=2 if facts.was_killed else 1, text=text)
    if facts.was_killed and node is not None and node >= 95:
        yield Sign(source=Source.resources, weight=3, text=f"{node:.0f} % of the host's memory was in use")
    elif facts.was_killed and not blamed and facts.memory_scope != "node" and share and share < ROOMY:
        yield Sign(source=Source.resources, weight=-2.5, text=f"memory was far from its limit: {used}")


def _suggest(case: Case) -> list[str]:
    facts = case.facts
    said = []
    if facts is not None and (facts.memory_limit_bytes or facts.requested_memory_bytes):
        limit = facts.requested_memory_bytes or facts.memory_limit_bytes or 0
        most = max((*facts.success_peaks_bytes, facts.peak_rss_bytes or 0, limit))
        said.append(
            f"Ask for more memory: {format_bytes(limit)} was the limit; try "
            f"{format_bytes(int(most * MORE_THAN_KILLED))}."
        )
    else:
        said.append("Ask for more memory, or lower the concurrency on a host.")
    said.append("Work in smaller pieces: read in chunks, use smaller types, free what is no longer needed.")
    return said


rule = Clues(
    recorded(_facts),
    job_state("OUT_OF_MEMORY", "OOM", "TERM_MEMLIMIT"),
    raised(
        5,
        "MemoryError _ArrayMemoryError ArrayMemoryError ArrowMemoryError bad_alloc",
        "bad_array_new_length",
        "OutOfMemoryError OutOfMemoryException OutOfMemory OutOfMemoryKillerError TaskOutOfMemory",
        unless=_DEVICE,
    ),
    errno("ENOMEM", 4),
    reports(
        6,
        "Out of memory: Kill(?:ed)? process|Memory cgroup out of memory|invoked oom-killer",
        "oom_reaper:|oom-kill:constraint",
        source=Source.kernel,
    ),
    reports(
        6,
        r"\boom[_-]kill event|OOM Killed|\bOUT_OF_MEM(?:ORY|\+)?\b|\bOOMKilled\b|TERM_MEMLIMIT",
        "OOM-killed|oom-killed|killed by the cgroup out-of-memory handler",
        unless="OOMKilled.?: ?false|(?i:cuda|hip)",
    ),
    reports(
        6,
        "[Ee]xceeded (?:job|step|hard|soft)? ?(?:memory|mem) limit",
        r"\b(?:v?mem|pmem|rss) \d+\w* exceeded limit",
        r"exceed\w* (?:its |the |a )?(?:requested |job )?(?:memory|mem|vmem) (?:limit|allocation|request)",
        r"job killed: v?mem|memory limit of \S+ exceeded|[Mm]emory limit (?:was )?exceeded",
        "running beyond (?:the )?'?(?:PHYSICAL|VIRTUAL|physical|virtual)'? memory limit",
        "exceeding (?:physical |virtual )?memory limits?",
        "[Ee]xceeded (?:the )?memory (?:limits|overhead)",
        r"exceeded \d+% memory budget|killed due to (?:the node running low on memory|memory pressure)",
        "node running low on memory|low on resource: memory|memory usage threshold",
        r"hard limit \"?(?:h_vmem|s_vmem|h_rss|h_data)|(?:over|reached|exceeded"
        "|hit) .{0,30}memory limit|[Mm]emory limit .{0,20}(?:reached|hit|exceeded)|OUT_OF_ME",
    ),
    says(
        4,
        r"\bout of (?:host |system |virtual |main )?memory\b|\brun(?:s|ning)? out of memory",
        r"\bran out of (?:host |system )?memory",
        r"memory allocation .{0,40}\bfail",
        unless=_DEVICE,
    ),
    says(
        5,
        r"\bJava heap space|GC overhead limit exceeded|heap limit Allocation failed|heap out of memory",
        "insufficient memory for the Java|Container killed .{0,60}memory|Direct buffer memory",
        r"fatal error: Killed signal terminated program|\b(?:oom|out-of-memory)[ -]kill",
    ),
    says(
        4.5,
        r"cannot allocate (?:a )?(?:vector|memory|\d)|unable to allocate [\d.,]+ ?[KMGTP]?i?B",
        "DefaultCPUAllocator|CPUAllocator.{0,40}(?:not enough|can't allocate) memory",
        "not enough memory|insufficient (?:virtual |system |physical )?memory|memory exhausted",
        "virtual memory exhausted|vector memory (?:exhausted|limit)",
        unless=_DEVICE,
    ),
    says(
        3,
        "(?:failed|unable|cannot|could not|can't) to (?:m?alloc(?:ate)?|allocate|reserve"
        r"|map)\b.{0,60}\b(?:bytes|memory|[KMGT]i?B)",
        r"\b(?:malloc|mmap|realloc|calloc)(?:\(\))? (?:failed|returned NULL)",
        "memory allocation (?:of .{1,40} )?fail|failed to allocate|allocation failure",
        unless=rf"{_DEVICE}|HSA_STATUS",
    ),
    says(
        4,
        "insufficient shared memory|out of shared memory|shared memory .{0,40}(?:exhausted|too small)",
        "array is too big|larger than the maximum possible size",
    ),
    says(2, r"\bOOM\b", unless=_DEVICE, case=True),
    ended("SIGKILL", weight=0.8),
    named(3.5, "OutOfMemory|OOM|Memory(?:Exhausted|Limit|Exceeded)", unless="(?i:cuda|gpu|hip|device|torch)"),
    says(
        5,
        "(?:used?|uses|requires?|allocate|needs?|wants?) (?:too much|more) memory|too much memory",
        "(?:due to|because of|for) (?:its |the )?(?:excessive|high|too high) memory (?:use|usage"
        "|consumption)",
        r"(?:over|above|exceed\w*) (?:its |the )?(?:\w+ )?mem(?:ory)? limit|mem(?:ory)? limit exceeded",
        r"(?-i:FatalProcessOutOfMemory|OutOfMemoryHandler|OutOfMemoryError)\b",
        r"\bbad_alloc\b",
        unless=_DEVICE,
    ),
    says(
        3.5,
        r"\bworkspace (?:array )?(?:is )?too small|\bwork(?:space)? memory (?:is )?(?:exhausted|too small)",
    ),
    says(1.3, r"\bmemory\b.{0,40}\b(?:exceed\w*|exhaust\w*|insufficient|fail\w*)\b", unless=_DEVICE),
    says(3, r"stack (?:usage|size) .{0,30}too close to the limit|node stack overflow"),
    suggest=_suggest,
)
