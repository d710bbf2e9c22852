"""ModelOps' two files of a job: the lines of `spans.jsonl`, and `summary.json` from one pass over the spans.

    telemetry/jobs/<job>/summary.json    totals, and by name: durations and metrics
    telemetry/jobs/<job>/spans.jsonl     a span a line

Pure: spans in, JSON values out. Times in the lines are seconds. `start_time` and `end_time` are of a clock
that begins anywhere, as ModelOps' are: pandas takes small numbers for numbers, so that `start_time +
duration` works on what it reads. `started_at` counts from 1970, which pandas makes a date of; by that, lines
of several machines can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flightlog.core.intervals import Intervals, length

SUMMARY, SPANS = "summary.json", "spans.jsonl"
LONGEST_NAME = 200
"""Of a job's folder, in bytes; file systems take 255."""


def job_name(job_id: str) -> str:
    """A job's name as one name of a folder: the id itself where it is made of letters, digits and `_.-~`.

    Other characters are written as in addresses (`%2F`), so that no id leads out of the folder and no two ids
    share one; what is too long ends in a digest instead.
    """
    name = quote(str(job_id), safe="", errors="surrogatepass") or "%"
    if not name.strip("."):
        name = name.replace(".", "%2E")
    if len(name) > LONGEST_NAME:
        digest = sha256(str(job_id).encode("utf-8", "surrogatepass")).hexdigest()
        name = f"{name[: LONGEST_NAME - 17]}-{digest[:16]}"
    return name


def job_folder(root: Path, job_id: str) -> Path:
    """Where a job's two files stand, under the folder that holds `telemetry`."""
    return root / "telemetry" / "jobs" / job_name(job_id)


def span_line(
    *,
    name: str,
    start_ns: int,
    end_ns: int | None,
    metrics: Mapping[str, Any],
    tags: Mapping[str, Any],
    span_id: str | int | None = None,
    parent_id: str | int | None = None,
    nonfinite: Mapping[str, str] | None = None,
    zero_ns: int,
) -> dict[str, Any]:
    """A line of `spans.jsonl`. Nanoseconds since 1970; `end_ns` is None while the span is open.

    `zero_ns` is where the clock of `start_time` and `end_time` begins.

    `duration` is exact, where the difference of the two times loses some 0.2 µs. Metrics and tags are JSON
    values.
    """
    line: dict[str, Any] = {
        "name": name,
        "start_time": (start_ns - zero_ns) / 1e9,
        "end_time": None if end_ns is None else (end_ns - zero_ns) / 1e9,
        "duration": None if end_ns is None else (end_ns - start_ns) / 1e9,
        "metrics": dict(metrics),
        "tags": dict(tags),
        "span_id": span_id,
        "parent_id": parent_id,
        "started_at": start_ns / 1e9,
    }
    if nonfinite:
        line["nonfinite"] = dict(nonfinite)
    return line


class JobSummary:
    """Adds spans up to what `summary.json` holds, in any order; not thread-safe.

    Memory grows with the number of names, and by 16 bytes for each stretch of time between which no span was
    open.
    """

    def __init__(self, job_type: str = "simulation") -> None:
        self._job_type = job_type
        self._open = 0
        self._covered = Intervals()
        self._names: dict[str, _Named] = {}

    def add(
        self,
        name: str,
        start_ns: int,
        end_ns: int | None,
        metrics: Mapping[str, Any] | None = None,
        *,
        failed: bool = False,
    ) -> None:
        """Take a span; nanoseconds of any one clock, `end_ns` None while it is open.

        Of metrics numbers count, and lists of numbers one by one; what is no number is left out, NaN and
        infinities too.
        """
        named = self._names.get(name)
        if named is None:
            named = self._names[name] = _Named()
        named.count += 1
        named.errors += failed
        if end_ns is None:
            self._open += 1
        else:
            self._covered.add(start_ns, end_ns)
            named.durations.add((end_ns - start_ns) / 1e9)
        for key, value in (metrics or {}).items():
            for one in value if isinstance(value, list | tuple) else (value,):
                number = _number(one)
                if number is not None:
                    named.metrics.setdefault(str(key), _Figures()).add(number)

    def to_dict(self) -> dict[str, Any]:
        """The document so far. `total_duration` is the time during which a span was open; `summed_duration`
        adds all up.
        """
        return {
            "job_type": self._job_type,
            "total_spans": sum(named.count for named in self._names.values()),
            "open_spans": self._open,
            "total_duration": length(self._covered.union()) / 1e9,
            "summed_duration": sum(named.durations.total for named in self._names.values()),
            "by_name": {name: named.to_dict() for name, named in self._names.items()},
        }


def _number(value: Any) -> float | None:
    try:
        return value if isinstance(value, int | float) and isfinite(value) else None
    except OverflowError:  # a whole number beyond all floats
        return None


class _Figures:
    """Numbers, added up."""

    __slots__ = ("count", "greatest", "least", "total")

    def __init__(self) -> None:
        self.count, self.total = 0, 0.0
        self.least: float | None = None
        self.greatest: float | None = None

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.least = value if self.least is None else min(self.least, value)
        self.greatest = value if self.greatest is None else max(self.greatest, value)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


class _Named:
    """All spans of one name."""

    __slots__ = ("count", "durations", "errors", "metrics")

    def __init__(self) -> None:
        self.count = self.errors = 0
        self.durations = _Figures()
        self.metrics: dict[str, _Figures] = {}

    def to_dict(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "count": self.count,
            "errors": self.errors,
            "total_duration": self.durations.total,
            "mean_duration": self.durations.mean,
            "max_duration": self.durations.greatest,
            "min_duration": self.durations.least,
        }
        if self.metrics:
            shown["metrics"] = {
                key: {"mean": one.mean, "sum": one.total, "count": one.count}
                for key, one in self.metrics.items()
            }
        return shown
