"""ModelOps' job folders: `spans.jsonl` and `summary.json` of a job.

ModelOps writes times of a monotonic clock, and no parents: durations and nesting can be recovered, dates
cannot. Files that Flightlog wrote in this form have both.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flightlog.adopt.run_maker import Adopter, RunMaker, SourceRecording
from flightlog.adopt.scratch import NestedInterval, nest
from flightlog.adopt.source_files import Record, SourceLines, document, first_objects, first_with, seconds
from flightlog.core.errors import UsageError
from flightlog.record.values import clean

SPANS, SUMMARY = "spans.jsonl", "summary.json"
_UNIX_NS = 10**18
"""Nanoseconds of Unix time in September 2001: a clock that starts at boot stays below."""


class ModelOpsJobs(Adopter):
    """One job folder, or a folder of them (`telemetry`, `telemetry/jobs`), recognized by the fields of its
    spans.
    """

    name = "modelops"
    title = "ModelOps job folder"
    one, several = "spans of a ModelOps job", "ModelOps jobs"
    missing = f"holds no job of ModelOps: no {SPANS} of spans with start_time and duration"

    def find(self, path: Path) -> list[Path]:
        """Every job, by name."""
        if path.name == SPANS:
            path = path.parent
        return first_with((path, path / "jobs", path / "telemetry" / "jobs"), _is_job)

    def files_of(self, recording: Path) -> Sequence[Path]:
        """Its spans and its summary."""
        return [recording / name for name in (SPANS, SUMMARY) if (recording / name).is_file()]

    def adopt(self, source: SourceRecording, maker: RunMaker) -> None:
        """Add the spans in the order of their starts, so that parents come first."""
        account, scratch = maker.account, maker.store
        file = source.path / SPANS
        summary = document(source.path / SUMMARY)
        lines = SourceLines(file)
        last = first = None
        parentless, unended = False, 0
        for record in lines:
            begin, end = _interval(record)
            if begin is None or not isinstance(record.get("name"), str):
                account.drop("lines without a name or a start")
                continue
            first = begin if first is None else min(first, begin)
            last = max(begin if end is None else end, last or begin)
            own = record.hex_id("span_id")
            parentless |= own is None
            if own is not None:
                scratch.put(own, None)
            if end is None:
                unended += 1
                scratch.put(f"open {unended}", record)
            else:
                scratch.place("", begin, max(begin, end), record)
        if first is None or last is None:
            raise UsageError(f"{file} holds no span")
        for which in range(1, unended + 1):
            record = Record(scratch.get(f"open {which}"))
            scratch.place("", _interval(record)[0] or 0, last, record)
        # Without a time of day one moment is known all the same: the job writes its spans when it ends.
        offset = 0
        if first < _UNIX_NS:
            offset = maker.end_with_file(file, last, "ModelOps' spans have no time of day", SPANS)
        for one in nest(scratch.placed()):
            _add(one, offset, maker)
        lines.report(account)
        job_type = summary.text("job_type")
        tags = {"job_id": source.path.name} | ({"job_type": job_type} if job_type else {})
        times = {"start_ns": first + offset, "end_ns": last + offset}
        maker.describe(project=job_type or "modelops", provider="modelops", tags=tags, **times)
        _note_differences(maker, summary, lines.read, parentless=parentless)


adopter = ModelOpsJobs()


def _note_differences(maker: RunMaker, summary: Record, read: int, *, parentless: bool) -> None:
    account = maker.account
    if summary:
        account.drop(f"{SUMMARY} (recomputed; ModelOps' total_duration adds nested spans twice)")
        stated = summary.whole("total_spans")
        if stated is not None and stated != read:
            account.problem(f"{SUMMARY} counts {stated:,} spans, {SPANS} holds {read:,}")
    if parentless:
        account.note(
            "ModelOps' spans name no parents: a span is put inside the one that holds it in time, which is "
            "a guess where threads ran side by side."
        )


def _add(one: NestedInterval, offset: int, maker: RunMaker) -> None:
    record = Record(one.record)
    metrics, marks = clean(record.object("metrics"), keys_secret=False)
    tags, tag_marks = clean(record.object("tags"))
    own, named = record.hex_id("span_id"), record.hex_id("parent_id")
    if own is None:
        parent = None if one.parent is None else maker.new_span_id(one.parent)
    else:
        parent = named if named is not None and named in maker.store else None
    ended = record.get("end_time") is not None
    lasted = record.seconds("duration") if ended else None
    error = Record(tags).text("error")
    maker.add_span(
        one.begin + offset,
        (one.end - one.begin) / 1e9 if lasted is None else lasted,
        name=record["name"],
        tags=tags,
        span_id=own or maker.new_span_id(one.number),
        parent_id=parent,
        ended=ended,
        metrics=metrics,
        status="error" if error else "ok",
        error_type=error,
        error_message=Record(tags).text("error_msg"),
        nonfinite={**marks, **tag_marks},
        kept="spans with their durations, tags and metrics" if ended else None,
        mapped=None if ended else "spans without an end → span_open, up to the last moment known",
    )
    if ended:
        maker.saw(one.end + offset)


def _interval(record: Record) -> tuple[int | None, int | None]:
    """Start and end in nanoseconds: of Unix time where the span has `started_at`, else of the job's clock."""
    begin, end = _ns(record.get("start_time")), _ns(record.get("end_time"))
    dated = record.moment_ns("started_at")
    if begin is None or dated is None:
        return begin, end
    return dated, None if end is None else dated + end - begin


def _is_job(folder: Path) -> bool:
    found = first_objects(folder / SPANS, 1)
    return bool(found) and {"name", "start_time", "duration"} <= found[0].keys() and "event" not in found[0]


def _ns(value: Any) -> int | None:
    found = seconds(value)
    return None if found is None else round(found * 1e9)
