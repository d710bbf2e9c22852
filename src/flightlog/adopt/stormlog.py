"""Stormlog's sink folders, exports and out-of-memory bundles: device-memory events of any schema version,
several ranks in one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from flightlog.adopt.run_maker import Adopter, RunMaker, SourceRecording
from flightlog.adopt.source_files import Record, document, files, folders, head
from flightlog.core.errors import UsageError
from flightlog.core.units import format_bytes
from flightlog.events import DeviceMemory, Failure
from flightlog.events.devices.event import RECORD_FIELDS, TelemetryEvent
from flightlog.events.devices.records import fill_unknown_counters
from flightlog.record.values import bounded, clean
from flightlog.store.devices import reading
from flightlog.store.devices.reading import MANIFEST, read_manifest, segment_paths

_METADATA = "metadata.json"
"""What an out-of-memory bundle says of its error."""
_SUFFIXES = (".json", ".json.gz", ".jsonl", ".jsonl.gz")
_MARKS = (b'"allocator_allocated_bytes"', b'"memory_allocated"', b'"memory_mb"')


class StormlogSinks(Adopter):
    """A sink folder, a folder of several, an exported file, or the bundle of an out-of-memory error."""

    name = "stormlog"
    title = "Stormlog sink or export"

    def recognize(self, path: Path) -> str | None:
        """By a sink's manifest, or the counters in an export."""
        sinks, exports = _found(path)
        if not sinks and not exports:
            return None
        return f"{len(sinks):,} Stormlog sinks" if len(sinks) > 1 else "device-memory events of Stormlog"

    def sources(self, path: Path) -> Sequence[SourceRecording]:
        """The sinks of one job together, and each export by itself."""
        sinks, exports = _found(path)
        if not sinks and not exports:
            raise UsageError(f"{path} holds no sink folder ({MANIFEST}, segments) and no export of Stormlog")
        groups: dict[str, list[Path]] = {}
        for sink in sinks:
            groups.setdefault(_job_of(sink), []).append(sink)
        found = []
        for ranks in groups.values():
            inside = tuple(file for sink in ranks for file in _sink_files(sink))
            found.append(SourceRecording(ranks[0] if len(ranks) == 1 else path, inside))
        return [*found, *(SourceRecording(one, _bundle_files(one) or (one,)) for one in exports)]

    def adopt(self, source: SourceRecording, maker: RunMaker) -> None:
        """Read event by event, rank after rank."""
        account = maker.account
        where, bundle = source.path, _bundle_files(source.path)
        sinks = list(dict.fromkeys(file.parent for file in source.files if file != where and not bundle))
        jobs, hosts, ranks = set[str](), set[str](), set[int]()
        statuses: dict[str, str] = {}
        peak = (-1, 0)
        for one in sinks or [where]:
            telemetry = reading.TelemetryReading(one)
            try:
                for event in telemetry:
                    jobs.update([event.job_id] if event.job_id else [])
                    ranks.add(event.rank)
                    hosts.add(event.host)
                    peak = max(peak, (event.allocator_allocated_bytes or 0, -event.rank))
                    statuses.setdefault(event.session_id, "incomplete")
                    if event.event_type == "stop":
                        statuses[event.session_id] = "completed"
                    maker.add(_device_event(event, maker), event.timestamp_ns)
                    account.keep("device-memory events")
            except ValueError as error:
                raise UsageError(f"{one} is no telemetry of Stormlog: {error}") from None
            for session in telemetry.manifest.sessions if telemetry.manifest and sinks else []:
                statuses[session.session_id] = session.status
            for problem in telemetry.problems:
                account.problem(problem)
            if (one / "rollups.json").is_file():
                account.drop("rollups.json (recomputed)")
        if not maker.counts:
            raise UsageError(f"{where} holds no event of Stormlog that can be read")
        account.keep("sessions", len(statuses))
        if bundle:
            statuses = dict.fromkeys(statuses, "interrupted")
        _describe(maker, statuses, jobs, ranks, hosts)
        if bundle:
            _add_error(document(where / _METADATA), maker)
        which = f" on rank {-peak[1]}" if len(ranks) > 1 else ""
        account.note(
            f"At most {format_bytes(peak[0])} were allocated{which}; `flightlog devices` explains the "
            "memory. The run reaches from the first event to the last."
        )


adopter = StormlogSinks()


def _describe(
    maker: RunMaker, statuses: dict[str, str], jobs: set[str], ranks: set[int], hosts: set[str]
) -> None:
    status = "interrupted" if "interrupted" in statuses.values() else "completed"
    if "running" in statuses.values():
        status = "crashed"
        unclosed = sum(one == "running" for one in statuses.values())
        maker.account.note(
            f"{unclosed:,} of {len(statuses):,} sessions {'was' if unclosed == 1 else 'were'} never closed; "
            "the events that reached the disk are here, and what came later is not known."
        )
    if "incomplete" in statuses.values():
        maker.account.note("The recording does not say how its session ended: there is no stop event.")
    job = ", ".join(sorted(jobs))
    maker.describe(
        project=job or "stormlog",
        status=status,
        provider="stormlog",
        host=next(iter(hosts)) if len(hosts) == 1 else "",
        tags={"ranks": sorted(ranks)[:64], **({"job_id": job} if job else {})},
    )


def _add_error(about: Record, maker: RunMaker) -> None:
    """Add the error that a bundle is of, which ended the run, and what else the bundle says of it."""
    kind, message = about.text("exception_type"), bounded(about.text("exception_message") or "", 2000)
    failure = Failure(scope="run", error_type=kind, message=message, traceback=None, fingerprint=None)
    at_ns = maker.last_ns or 0
    maker.add(failure, at_ns, kept="the error that memory ran out with")
    taken = {"exception_type", "exception_message", "session", "session_status"}
    maker.add_other("stormlog.oom", about, at_ns, what=_METADATA, but=taken)
    maker.account.drop("environment.json and manifest.json of the bundle")
    maker.describe(status="failed", error=f"{kind}: {message}")


def _device_event(event: TelemetryEvent, maker: RunMaker) -> DeviceMemory:
    """The event in schema v3, where an unknown counter is 0 and marked as unknown in the metadata."""
    fields: dict[str, Any] = {name: getattr(event, name) for name in RECORD_FIELDS}
    fields |= {"schema_version": 3, "metadata": clean(event.metadata)[0]}
    if isinstance(event.context, str):
        fields["context"] = bounded(event.context, 500)
    unknown = fill_unknown_counters(fields)
    if unknown:
        known = fields["metadata"].get("memory_capabilities")
        fields["metadata"]["memory_capabilities"] = {**(known if isinstance(known, dict) else {}), **unknown}
        maker.account.map("unknown counters of schema v4 → 0, marked in metadata.memory_capabilities")
    return DeviceMemory(**fields)


def _found(path: Path) -> tuple[list[Path], list[Path]]:
    """Sink folders and exported files at a path."""
    if path.name == MANIFEST and path.is_file():
        path = path.parent
    if path.is_file() or _bundle_files(path):
        return [], [path] if path.is_dir() or _is_export(path) else []
    if _is_sink(path):
        return [path], []
    sinks = [one for one in folders(path) if _is_sink(one)]
    bundles = [one for one in folders(path) if _bundle_files(one)]
    return sinks, [*bundles, *(one for one in files(path) if _is_export(one))]


def _bundle_files(path: Path) -> tuple[Path, ...]:
    """The files of an out-of-memory bundle that are read; none where it is no bundle."""
    found = path / reading.BUNDLE_EVENTS, path / _METADATA
    return found if found[0].is_file() and "exception_type" in document(found[1]) else ()


def _is_sink(folder: Path) -> bool:
    """Whether a folder has a sink's manifest, or segments of events without one."""
    try:
        manifest = read_manifest(folder)
        if manifest is not None and manifest.format == reading.MANIFEST_FORMAT and manifest.segments:
            return True
        return any(_MARKS[0] in head(segment) for segment in segment_paths(folder, None)[:1])
    except (OSError, msgspec.MsgspecError):
        return False


def _is_export(file: Path) -> bool:
    start = head(file) if file.name.endswith(_SUFFIXES) else b""
    if b'"event":"device_memory"' in start[:4096] or start.lstrip()[:1] not in {b"[", b"{"}:
        return False  # a stream of a run of ours, or no JSON
    return any(mark in start for mark in _MARKS) and (b'"timestamp' in start)


def _sink_files(sink: Path) -> list[Path]:
    manifest = sink / MANIFEST
    segments = [one for one in segment_paths(sink, read_manifest(sink)) if one.is_file()]
    return [*([manifest] if manifest.is_file() else []), *segments]


def _job_of(sink: Path) -> str:
    """A key that sinks of the same job share; a sink without a job or world size is alone."""
    manifest = read_manifest(sink)
    for session in manifest.sessions if manifest else []:
        if session.job_id:
            return f"job {session.job_id}"
        if (session.world_size or 1) > 1:
            return f"world {session.world_size}"
    return f"alone {sink.name}"
