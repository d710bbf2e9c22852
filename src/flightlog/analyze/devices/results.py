"""Results about device memory: use by session, device and phase, leaks, stragglers and out of memory.

Times are Unix nanoseconds of the host's own clock (`_ns`) or seconds (`_s`); sizes are bytes. What is unknown
is None.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from flightlog.events.devices.oom_message import Request

Counter = Literal["allocated", "reserved", "device_used"]
GapBasis = Literal["driver", "assumed"]
ClockBasis = Literal["clock_offset", "wall_clock"]
StragglerKind = Literal["late", "long", "memory"]
CauseKind = Literal[
    "impossible", "leak", "fragmentation", "other_process", "large_allocation", "full", "unknown"
]


class Peak(Struct, frozen=True, kw_only=True):
    """The highest value of a counter, and the first moment of it."""

    bytes: int
    at_ns: int
    after_s: float
    """Since the session's first event."""
    phase: str | None


class PhaseUse(Struct, frozen=True, kw_only=True):
    """One phase of a session; growths add up to the session's growth.

    Of a run, a phase that is a span is counted and timed by the spans of its name in that process; others,
    and those of a telemetry file, by events, whose durations add up to the session's.
    """

    phase: str | None
    """What the code said it was doing, numbers at the end left open (`step #`); None outside of any phase."""
    repetitions: int
    events: int
    first_ns: int
    duration_s: float
    """Time outside of inner phases."""
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    peak_device_used_bytes: int | None
    growth_bytes: int | None
    """Changes of the allocated memory that were first seen in this phase, added up."""


class Fragmentation(Struct, frozen=True, kw_only=True):
    """Memory that the allocator holds and has not handed out, as a share of what it holds."""

    at_peak: float
    """When most was held."""
    inactive_at_peak: float | None
    median: float | None
    most_bytes: int
    most_share: float
    most_at_ns: int
    """When most bytes lay unused."""
    tight_events: int
    """Events at which the allocator held 90 % of the device or more, and a fifth of that lay unused."""
    tight_first_ns: int | None


class HiddenGap(Struct, frozen=True, kw_only=True):
    """Device memory in use that the allocators of our sessions on the device do not hold.

    Contexts, libraries and other processes. Of sessions of more than 2,048 events a thinned part counts.
    """

    basis: GapBasis
    """`driver`: the recording says so. `assumed`: it does not say, and the counters differ as a driver's
    do."""
    events: int
    median_bytes: float
    max_bytes: int
    growing: bool
    growth_bytes: float
    """From the first part of the session to the last."""
    shared_with: list[str]
    """Sessions of ours on the same device, whose memory was taken off, too."""


class Leak(Struct, frozen=True, kw_only=True):
    """A suspicion: from one repetition of a phase to the next, memory grew steadily and never came back."""

    phase: str
    counter: Counter
    repetitions: int
    tested: int
    """Repetitions that were compared: less those of the warm-up, and thinned where there are many."""
    bytes_per_repetition: float
    growth_bytes: float
    """Over the compared repetitions, along the fitted line."""
    chance: float
    """How often levels in a random order show such a trend (Mann-Kendall, one-sided)."""
    repetition_s: float | None
    """From the start of one to the start of the next, in the middle."""
    full_in_s: float | None
    """From the last event on, at this pace; None where the capacity is not known."""


class MemoryCurve(Struct, frozen=True, kw_only=True):
    """Memory over time, in at most 256 steps of as many events each; the highest value of each step."""

    after_s: list[float]
    allocated_bytes: list[int | None]
    reserved_bytes: list[int | None]
    device_used_bytes: list[int | None]


class SessionUse(Struct, frozen=True, kw_only=True):
    """One collector's life in one process on one device."""

    session_id: str
    rank: int
    local_rank: int
    world_size: int
    host: str
    pid: int
    device_id: int
    device_uuid: str | None
    job_id: str | None
    collector: str
    status: str
    events: int
    start_ns: int
    end_ns: int
    """Of the last event."""
    duration_s: float
    sampling_interval_ms: int
    clock_offset_ns: int | None
    """By how much this host's clock is ahead of rank 0's, where that was measured."""
    capacity_bytes: int | None
    peak_allocated: Peak | None
    peak_reserved: Peak | None
    peak_device_used: Peak | None
    unknown: list[str]
    """Counters that no event knows."""
    phases: list[PhaseUse]
    """Those with the highest peak first."""
    phases_left_out: int
    fragmentation: Fragmentation | None
    hidden: HiddenGap | None
    leaks: list[Leak]
    warnings: int
    criticals: int
    errors: int
    curve: MemoryCurve

    @property
    def highest(self) -> Peak | None:
        """The peak of what was allocated; where that is not known, of what was in use on the device."""
        return self.peak_allocated or self.peak_device_used


class GpuSamples(Struct, frozen=True, kw_only=True):
    """What the driver said of one GPU, or one instance of a partitioned one, over the samples of the run's
    resources.
    """

    host: str | None
    gpu_index: int | None
    gpu_uuid: str | None
    gpu_mig: str | None
    samples: int
    memory_peak_bytes: int | None
    memory_total_bytes: int | None
    gpu_percent_mean: float | None
    gpu_percent_max: float | None
    power_mean_w: float | None
    power_max_w: float | None


class Alignment(Struct, frozen=True, kw_only=True):
    """By what the ranks' times are compared; never by the first sample of each."""

    basis: ClockBasis
    hosts: int
    unaligned: list[int]
    """Ranks without a measured offset, where others have one."""


class Straggler(Struct, frozen=True, kw_only=True):
    """A rank that stands out: it began a phase late, took long in it, or held more memory."""

    rank: int
    kind: StragglerKind
    phase: str | None
    value: float
    """Seconds after the median rank (late), seconds (long) or bytes (memory)."""
    median: float
    """Of all ranks; 0 for late."""


class OomCause(Struct, frozen=True, kw_only=True):
    """An explanation, with the figures that speak for it."""

    kind: CauseKind
    text: str


class Rise(Struct, frozen=True, kw_only=True):
    """How a rank's allocated memory rose before memory ran out."""

    rank: int
    session_id: str
    from_bytes: int
    to_bytes: int
    before_s: float
    """How long before the error the rise began."""


class OutOfMemory(Struct, frozen=True, kw_only=True):
    """Memory ran out: where, in what, why, and who rose first."""

    at_ns: int | None
    after_s: float | None
    """Since the session's first event; None where the session is not known."""
    rank: int | None
    host: str | None
    pid: int | None
    device_id: int | None
    session_id: str | None
    phase: str | None
    span_path: list[str]
    bundle: str | None
    """Folder of the bundle, within the run."""
    message: str | None
    request: Request
    causes: list[OomCause]
    """The most likely first; never none."""
    rises: list[Rise]
    """Ranks that rose before it, the first to rise first."""


class DeviceReport(Struct, frozen=True, kw_only=True):
    """All there is to say of device memory in a run or a recording."""

    source: str
    """The run's id, or the path of the recording."""
    events: int
    sessions: list[SessionUse]
    """By rank, host, device and start."""
    gpus: list[GpuSamples]
    alignment: Alignment | None
    """None for a single rank."""
    stragglers: list[Straggler]
    out_of_memory: list[OutOfMemory]
    """By time."""
    advice: list[str]
    """What matters, in sentences."""
    problems: list[str]
    """What could not be read."""
