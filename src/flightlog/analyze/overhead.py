"""What the recorder itself cost."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from flightlog.analyze.distribution import exact_sum
from flightlog.store.layout import WriterInfo


class OverheadSummary(Struct, frozen=True, kw_only=True):
    """The recorder's own work, all recording processes together, as their notes tell; null where one of them
    has no figure.
    """

    writers: int
    lines: int | None
    bytes: int | None
    drain_s: float | None
    """Time spent moving lines into files."""
    background_cpu_s: float | None
    """CPU time of the recorder's own threads: draining, sampling, heartbeats, subscribers."""
    foreground_s: float | None
    """Estimate of what recording took in the program's own threads: each writer's lines, times what recording
    a span was measured to cost it."""
    percent: float | None
    """Both over the run's wall time; 100 would be one core."""


def overhead(writers: Sequence[WriterInfo], duration_s: float | None) -> OverheadSummary:
    """The summary of what writers noted of themselves."""
    if not writers:
        return OverheadSummary(
            writers=0,
            lines=None,
            bytes=None,
            drain_s=None,
            background_cpu_s=None,
            foreground_s=None,
            percent=None,
        )
    noted = [info for info in writers if _has_noted(info)]
    whole = len(noted) == len(writers)
    cpu_s = exact_sum(info.background_cpu_s or 0.0 for info in noted) if whole else None
    known = all(info.line_cost_s is not None for info in writers)
    foreground_s = (
        exact_sum(sum(info.lines.values()) * (info.line_cost_s or 0.0) for info in writers) if known else None
    )
    return OverheadSummary(
        writers=len(writers),
        lines=sum(sum(info.lines.values()) for info in writers),
        bytes=sum(info.bytes or 0 for info in noted) if whole else None,
        drain_s=exact_sum(info.drain_s or 0.0 for info in noted) if whole else None,
        background_cpu_s=cpu_s,
        foreground_s=foreground_s,
        percent=None
        if cpu_s is None or not duration_s
        else 100 * (cpu_s + (foreground_s or 0.0)) / duration_s,
    )


def _has_noted(info: WriterInfo) -> bool:
    """Whether a writer told what it cost: one that was killed before its first heartbeat knows of no bytes
    yet.
    """
    if info.bytes is None or info.drain_s is None or info.background_cpu_s is None:
        return False
    return info.closed or info.bytes > 0
