"""Nextflow's trace files: one row per task attempt, with the configured fields, human-readable or raw."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from flightlog.adopt.run_maker import Account, Adopter, RunMaker, SourceRecording
from flightlog.adopt.source_files import SourceLines, files, head, moment_ns, parsed, whole
from flightlog.core.errors import UsageError
from flightlog.core.text import plural, signal_name, words
from flightlog.core.units import parse_age, parse_size
from flightlog.events import CacheLookup, ResourceRequest, TaskRetried, TaskStarted, TaskSubmitted
from flightlog.record.values import bounded, clean

_KNOWN = words(
    "task_id hash native_id process tag name status exit submit start complete duration realtime %cpu "
    "peak_rss peak_vmem rchar wchar attempt cpus memory"
)
_ENDS: dict[str, Literal["completed", "cancelled"]] = {"COMPLETED": "completed", "ABORTED": "cancelled"}
_UNTIMED, _CACHED = "rows without a time", "rows from the cache"
"""Lanes of rows that wait for the end of the file."""
_SUFFIXES = {".txt", ".tsv", ".csv"}
_SIZES = ("rss", "vmem", "peak_vmem", "rchar", "wchar", "disk")
_MEASURED = words("%cpu %mem peak_rss rss peak_vmem vmem rchar wchar read_bytes write_bytes")
_COUNTS = ("syscr", "syscw", "vol_ctxt", "inv_ctxt", "num_accelerators")
_TAGS = (
    *("hash", "native_id", "tag", "module", "container", "queue", "workdir", "scratch", "error_action"),
    *("cpu_model", "hostname", "accelerator", "accelerator_type"),
)
_USED = _KNOWN.union(_SIZES, _COUNTS, _TAGS, _MEASURED, ("time", "accelerator_request"))


_WHOLE = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")


class NextflowTraces(Adopter):
    """One trace file, or a folder with some, such as `pipeline_info`, recognized by the column names."""

    name = "nextflow"
    title = "Nextflow trace file"
    one, several = "a table with the columns of a Nextflow trace", "Nextflow traces"
    missing = "holds no trace file of Nextflow: no table with its columns"
    any_file = True

    def find(self, path: Path) -> list[Path]:
        """Every trace file, by name."""
        candidates = [one for one in files(path) if one.suffix in _SUFFIXES] if path.is_dir() else [path]
        return [one for one in candidates if _is_trace(one)]

    def adopt(self, source: SourceRecording, maker: RunMaker) -> None:
        """Read row by row; cached results, whose times are of an earlier run, come last."""
        columns, separator = _header(source.path)
        if "status" not in columns or not {"submit", "start", "complete"} & set(columns):
            raise UsageError(
                f"{source.path} lacks columns: status is needed, and one of submit, start and complete. "
                "Nextflow writes those that trace.fields names"
            )
        account = maker.account
        table = _Table(maker)
        for row in _rows(source.path, columns, separator, account):
            table.take(row)
        table.finish()
        for name in (name for name in columns if name not in _USED):
            account.drop(f"column {name}")
        maker.describe(provider="nextflow")


adopter = NextflowTraces()


def _is_trace(file: Path) -> bool:
    known = _KNOWN.intersection(_header(file)[0])
    return "status" in known and bool({"name", "process", "task_id"} & known) and len(known) >= 4


def _header(path: Path) -> tuple[list[str], str]:
    first = head(path).partition(b"\n")[0].decode("utf-8", "replace").strip("\r")
    separator = "\t" if "\t" in first else ","
    return [name.strip() for name in first.split(separator)], separator


def _rows(file: Path, columns: list[str], separator: str, account: Account) -> Iterator[dict[str, str]]:
    """The rows as texts, without cells that are empty or `-`."""
    lines, odd = SourceLines(file), 0
    for number, (line, complete) in enumerate(lines.raw()):
        text = line.decode("utf-8", "replace").rstrip("\r")
        if not number or not text.strip("\0 \t"):
            continue
        cells = text.split(separator)
        if len(cells) != len(columns):
            odd += complete
            lines.torn += not complete
            continue
        pairs = zip(columns, cells, strict=True)
        yield {name: cell.strip() for name, cell in pairs if cell.strip() not in {"", "-"}}
    lines.report(account)
    if odd:
        account.problem(
            f"{file.name}: {odd:,} lines have another number of cells than the first, and were skipped"
        )


_Times = tuple[int | None, int | None, int | None]
"""When an attempt was submitted, started and completed, in Unix nanoseconds."""


class _Table:
    """Turns the rows of one trace into the events of a run."""

    def __init__(self, maker: RunMaker) -> None:
        self._maker, self._scratch, self._account = maker, maker.store, maker.account
        self._number = 0
        self._zoneless = self._derived = False

    def take(self, row: dict[str, str]) -> None:
        """Add one row: an attempt of a task, or a cached result."""
        self._number += 1
        status = row.get("status", "")
        if status == "CACHED":
            self._scratch.place(_CACHED, self._number, 0, row)
        elif (times := self._times(row)) is not None:
            self._attempt(row, status, times)
        elif self._maker.last_ns is None:  # no moment is known yet
            self._scratch.place(_UNTIMED, self._number, 0, row)
        else:
            self._without_time(row)

    def _without_time(self, row: dict[str, str]) -> None:
        """Add a row without any time at the last time known: how the task ended counts all the same."""
        self._attempt(row, row.get("status", ""), (None, None, self._maker.last_ns))
        self._account.map("rows without a time → at the last moment known before")

    def _attempt(self, row: dict[str, str], status: str, times: _Times) -> None:
        submit, start, _ = times
        first = next(at for at in times if at is not None)
        process = _process(row)
        task_id, attempt = self._identity(row, process, first)
        common: dict[str, Any] = {"task": process, "task_id": task_id, "attempt": attempt}
        args = clean({"name": row["name"]} if "name" in row else {})[0]
        if attempt == 1:
            submitted = TaskSubmitted(args=args, parent_id=self._maker.span_id, **common)
            self._maker.add(submitted, first, kept="tasks submitted")
        queue_s = None if submit is None or start is None else max(0, start - submit) / 1e9
        worker = row.get("hostname")
        if start is not None:
            self._maker.add(TaskStarted(worker=worker, queue_s=queue_s, **common), start)
        self._request(row, common, first)
        self._end(row, status, {**common, "args": args, "worker": worker, "queue_s": queue_s}, times)

    def _times(self, row: dict[str, str]) -> _Times | None:
        """Submission, start and end; missing ones follow from the durations. None where no time is known."""
        named = [row[name] for name in ("submit", "start", "complete") if name in row]
        self._zoneless |= any(not value.isdigit() for value in named)
        submit, start, complete = (time_of(row.get(name)) for name in ("submit", "start", "complete"))
        elapsed, lasted = seconds_of(row.get("duration")), seconds_of(row.get("realtime"))
        if complete is None and submit is not None and elapsed is not None:
            complete = submit + round(elapsed * 1e9)
            self._derived = True
        if start is None and complete is not None and lasted is not None:
            start = max(complete - round(lasted * 1e9), submit or 0)
            self._derived = True
        if complete is None and start is not None and lasted is not None:
            complete = start + round(lasted * 1e9)
        found = submit, start, complete
        return None if found == (None, None, None) else found

    def _identity(self, row: dict[str, str], process: str, at_ns: int) -> tuple[str, int]:
        """The task that a row is an attempt of, and the attempt. A retry has an id of its own, and the
        failed one's name.
        """
        own = row.get("task_id") or row.get("hash") or f"row-{self._number}"
        stated = whole_of(row.get("attempt"))
        key = f"failed\0{row.get('name') or own}"
        failed: list[list[Any]] = self._scratch.get(key) or []
        before = next((one for one in failed if stated is None or one[1] == stated - 1), None)
        attempt = 1  # of a further one whose earlier ones are not in this file, too
        if before is not None:
            failed.remove(before)
            own, attempt = before[0], before[1] + 1
            further = "rows of a further attempt → the task that failed before"
            named = "rows with the name of one that failed → its next attempt"
            retried = TaskRetried(task=process, task_id=own, attempt=attempt - 1, reason=before[2])
            self._maker.add(retried, at_ns, mapped=named if stated is None else further)
        if row.get("status") == "FAILED":
            failed.append([own, attempt, _reason(row)])
        if before is not None or row.get("status") == "FAILED":
            self._scratch.put(key, failed)
        return own, attempt

    def _end(self, row: dict[str, str], status: str, common: dict[str, Any], times: _Times) -> None:
        lasted = seconds_of(row.get("realtime"))
        at_ns = next((at for at in reversed(times) if at is not None), None)
        if at_ns is None or status in {"NEW", "SUBMITTED", "RUNNING"}:
            self._account.keep(f"tasks {status or 'without a status'}, in flight")
            return
        # A task too short to be measured has zeros throughout, and nobody uses no memory at all.
        memory = [bytes_of(row.get(name)) for name in ("peak_rss", "rss", "peak_vmem", "vmem")]
        if 0 in memory and not any(memory):
            self._account.drop("zeros in place of figures, of tasks too short to be measured")
            row = {name: cell for name, cell in row.items() if name not in _MEASURED}
        busy, peak = share_of(row.get("%cpu")), bytes_of(row.get("peak_rss"))
        cpu_s = None if busy is None or lasted is None else round(busy / 100 * lasted, 6)
        metrics: dict[str, Any] = {f"{name}_bytes": bytes_of(row.get(name)) for name in _SIZES}
        metrics |= {name: whole_of(row.get(name)) for name in _COUNTS}
        metrics["mem_percent"] = share_of(row.get("%mem"))
        ended: dict[str, Any] = {
            **common,
            "duration_s": lasted,
            "cpu_s": cpu_s,
            "cpu_scope": None if cpu_s is None else "tree",
            "peak_rss_bytes": peak,
            "rss_scope": None if peak is None else "tree",
            "read_bytes": bytes_of(row.get("read_bytes")),
            "write_bytes": bytes_of(row.get("write_bytes")),
            "metrics": {name: value for name, value in metrics.items() if value is not None},
            "tags": clean({name: row[name] for name in _TAGS if name in row})[0],
        }
        if cpu_s is not None:
            self._account.map("%cpu over realtime → cpu_s")
        exit_code = whole_of(row.get("exit"))
        self._maker.add_end(
            _ENDS.get(status, "failed"),
            ended,
            at_ns,
            kept=f"tasks {status}",
            error_type="CommandError",
            message="aborted by Nextflow" if status == "ABORTED" else _reason(row),
            exit_code=exit_code,
            signal=signal_of(exit_code),
        )

    def _request(self, row: dict[str, str], common: dict[str, Any], at_ns: int) -> None:
        asked: dict[str, Any] = {
            "cpus": whole_of(row.get("cpus")),
            "memory_bytes": bytes_of(row.get("memory")),
            "walltime_s": seconds_of(row.get("time")),
        }
        if any(value is not None for value in asked.values()):
            request = ResourceRequest(task=common["task"], task_id=common["task_id"], **asked)
            self._maker.add(request, at_ns, mapped="cpus, memory and time → resource_request")

    def finish(self) -> None:
        """Add rows that came before any time was known, and cached results, whose times are of an earlier
        run.
        """
        at_ns = self._maker.first_ns
        waiting: Counter[str] = Counter()
        for lane, _, _, row in self._scratch.placed():
            waiting[lane] += 1
            if lane == _UNTIMED:
                if at_ns is not None:
                    self._without_time(row)
                continue
            times = (time_of(row.get(name)) for name in ("submit", "start", "complete"))
            own = next((at for at in (at_ns, *times) if at is not None), 0)
            saved_s = seconds_of(row.get("realtime"))
            hit = CacheLookup(task=_process(row), result="hit", key=row.get("hash"), saved_s=saved_s)
            self._maker.add(hit, own, mapped="rows CACHED → cache_lookup, a hit")
        if at_ns is None and waiting[_UNTIMED]:
            self._account.problem(f"{waiting[_UNTIMED]:,} rows have no time, and were skipped")
        if waiting[_CACHED]:
            tasks = plural(waiting[_CACHED], "task was", "tasks were")
            self._account.note(
                f"{tasks} taken from Nextflow's cache: cache hits here, at the run's start, with how long "
                "they took when they were executed as saved_s."
            )
        if self._derived:
            self._account.note(
                "The file lacks when tasks started or ended: the end is worked out from submission and "
                "duration, the start from the end and realtime, so that queue_s includes what Nextflow took "
                "to notice the end."
            )
        if self._zoneless:
            self._account.note("The times in the file have no zone, and are taken as UTC.")


def _process(row: dict[str, str]) -> str:
    """The process of a row: as it says, else `FASTQC` of the name `FASTQC (sample_1)`."""
    name = row.get("name", "")
    bare = re.sub(r" \([^()]*(?:\([^()]*\)[^()]*)*\)$", "", name) or name
    return bounded(row.get("process") or bare or "task", 500)


def _reason(row: dict[str, str]) -> str:
    exit_code = whole_of(row.get("exit"))
    if exit_code is None:
        return f"Nextflow says {row.get('status', 'FAILED')}, and no exit code"
    ended = signal_of(exit_code)
    return f"exit code {exit_code}" + (f" ({ended})" if ended else "")


def seconds_of(value: str | None) -> float | None:
    """Seconds of `1m 3s`, `350ms` or `2d 4h`; a number alone is milliseconds, as in raw files."""
    if value is not None and _NUMBER.fullmatch(value):
        return float(value) / 1000
    return parsed(parse_age, value and value.replace("min", "m"))


def bytes_of(value: str | None) -> int | None:
    """Bytes of `1.2 GB`, which Nextflow counts in 1024s; a number alone is bytes, as in raw files."""
    return whole(parsed(parse_size, value and value.rstrip("iBb")))


def time_of(value: str | None) -> int | None:
    """Unix nanoseconds of `2026-05-20 03:52:00.123`, taken as UTC; a number alone is milliseconds of Unix
    time.
    """
    if value is None:
        return None
    if _WHOLE.fullmatch(value):
        return int(value) * 1_000_000 if int(value) < 10**14 else None
    return moment_ns(value)


def share_of(value: str | None) -> float | None:
    """`95.2` of `95.2%`."""
    bare = None if value is None else value.removesuffix("%")
    return float(bare) if bare is not None and _NUMBER.fullmatch(bare) else None


def whole_of(value: str | None) -> int | None:
    """A whole number."""
    return int(value) if value is not None and _WHOLE.fullmatch(value) else None


def signal_of(exit_code: int | None) -> str | None:
    """The signal of an exit code above 128, as shells have it."""
    return signal_name(exit_code - 128) if exit_code is not None and 128 < exit_code < 193 else None
