"""A call, a collective or a lock did not answer in the time it was given, though its other side was there."""

from __future__ import annotations

from collections.abc import Iterator

from flightlog.analyze.diagnosis.base import RunFacts, Sign, Source
from flightlog.analyze.diagnosis.matchers import Clues, ended, named, raised, recorded, reports, says, status
from flightlog.core.units import format_duration

_CONNECT = (
    r"connect(?:ion)? ?(?:attempt )?(?:to .{0,80} )?tim(?:ed|e)[ -]?out|errno 110|ETIMEDOUT|winerror 10060"
    r"|connect timeout"
    r"|(?:to|while|on|during|in) (?:connect|establish|handshak|resolv)|ConnectTimeout|connecttimeout"
    r"|connect to|failed to connect|TLS handshake"
)


def _facts(facts: RunFacts) -> Iterator[Sign]:
    ran, limit = facts.duration_s, facts.timeout_s
    if facts.timed_out:
        of = f" of {format_duration(limit)}" if limit is not None else ""
        text = f"the engine ended the attempt at its timeout{of}"
        yield Sign(source=Source.scheduler, weight=6, text=text)
    if ran is not None and limit and ran >= 0.98 * limit:
        text = f"it ran {format_duration(ran)}; its timeout is {format_duration(limit)}"
        yield Sign(source=Source.resources, weight=4, text=text)


rule = Clues(
    recorded(_facts),
    raised(4, "TimeoutError TimeoutException Timeout timeout", unless=_CONNECT),
    raised(
        4.5,
        "TimeoutExpired ReadTimeout ReadTimeoutError WriteTimeout PoolTimeout SocketTimeoutException",
        "GetTimeoutError FunctionTimedOut DeadlineExceeded DeadlineExceededError RetryTimeout",
        "AirflowTaskTimeout QueryTimeoutError ServerTimeoutError ServerSelectionTimeoutError",
        "LockTimeout AcquireTimeout CellTimeoutError APITimeoutError RequestTimeout",
        "AsyncioTimeoutError SocketTimeout TimedOut ConnectionTimeout RendezvousTimeoutError",
        "HeartbeatTimeout LockTimeoutError TimeoutErrorException",
        unless=_CONNECT,
    ),
    reports(
        6,
        "Watchdog caught collective operation timeout|collective operation timeout",
        r"ran for \d+ milliseconds before timing out|Some NCCL operations have failed or timed out",
    ),
    says(
        4,
        r"\bread(?:ing)? (?:operation )?timed out|\bread timeout|The read operation timed out",
        "write operation timed out|receive timed out|request (?:has )?timed out|request timeout",
        "operation timed out|response .{0,30}timed out",
        r"\bdeadline[ _]exceeded\b|context deadline exceeded|deadline expired",
        unless=_CONNECT,
    ),
    says(
        3,
        r"\btimed out (?:after|waiting|while waiting|in|on|when waiting)\b|\btimed out\.?$",
        r"\btimeout (?:of|after|exceeded|expired|reached|waiting|while)\b|\bhas timed out",
        "wait(?:ing|ed)? .{0,60}timed out",
        unless=_CONNECT,
    ),
    says(
        3.5,
        r"\b(?:lock|statement|barrier|rendezvous|store|socket|gloo|session|query|idle"
        r"|pool) (?:wait )?time-?out",
        unless=_CONNECT,
    ),
    says(3, r"^(?:Error: )?timeout\b[ :-]|within the \d+ ?m?s timeout|\btimeout \(>|pytest-timeout|timeout!"),
    says(0.8, r"\btimeout\b|\btime-out\b|\btiming out\b", unless=_CONNECT),
    says(
        2.5,
        "did not (?:respond|complete|finish|start|answer|become ready) (?:in time|within)",
        r"no response (?:with)?in|took too long|could not acquire .{0,40}\block",
    ),
    status(408, 504, weight=3.5),
    ended(124, weight=3),
    named(3, "Time(?:d)?[Oo]ut|Deadline", unless="Connect|connect|TimeLimit"),
    says(2.5, r"\btimed[ -]out\b", unless=_CONNECT),
    reports(4, r"curl: \(28\)", unless="[Cc]onnect"),
    says(
        3.5,
        r"gave up waiting|waiting for .{0,40}\block\b.{0,20}(?:after|timed|failed)",
        r"longer than .{0,30}\b(?:to (?:answer|respond|reply)|for (?:an answer|a response|a reply))",
    ),
    says(5, r"pool limit of size|pool exhausted|timeout ?>"),
    suggest=[
        "Find out which side was slow: look at what the other end (server, rank, child process) did in "
        "that time.",
        "With collectives, one rank that is late or dead makes all others time out: read that rank's log "
        "first.",
        "If the work does take that long, raise the timeout of that call; otherwise retry with a growing "
        "pause.",
    ],
)
