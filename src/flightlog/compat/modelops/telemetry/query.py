"""Questions to saved jobs: which there are, and their spans."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from heapq import nlargest
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from flightlog.compat.modelops.telemetry.storage import TelemetryStorage
from flightlog.export.modelops import SUMMARY, job_folder

__all__ = ["find_spans", "list_jobs", "slowest_spans"]


def list_jobs(storage_dir: str | os.PathLike[str], *, job_type: str | None = None) -> list[dict[str, Any]]:
    """The summaries of all saved jobs, or of those of one type, the job that was saved last first; each has
    its `job_id`.
    """
    files = job_folder(Path(storage_dir), "any").parent.glob(f"*/{SUMMARY}")
    saved = sorted(files, key=lambda file: file.stat().st_mtime_ns, reverse=True)
    jobs = ({"job_id": unquote(file.parent.name), **json.loads(file.read_bytes())} for file in saved)
    return [job for job in jobs if job_type is None or job.get("job_type") == job_type]


def find_spans(
    storage_dir: str | os.PathLike[str],
    *,
    job_id: str | None = None,
    name: str | None = None,
    tags: Mapping[str, Any] | None = None,
    min_duration: float = 0.0,
) -> Iterator[dict[str, Any]]:
    """The spans of one job, or of all, that have this name and these tags and took at least so many seconds;
    each has its `job_id`.
    """
    storage = TelemetryStorage(storage_dir)
    for job in [job["job_id"] for job in list_jobs(storage_dir)] if job_id is None else [job_id]:
        for span in storage.load_spans(job):
            fits = (span.get("duration") or 0.0) >= min_duration and name in {None, span.get("name")}
            if fits and (tags or {}).items() <= (span.get("tags") or {}).items():
                yield {"job_id": job, **span}


def slowest_spans(
    storage_dir: str | os.PathLike[str], number: int = 10, **wanted: Any
) -> list[dict[str, Any]]:
    """The spans that took longest, of those that `find_spans` gives."""
    return nlargest(number, find_spans(storage_dir, **wanted), key=lambda span: span.get("duration") or 0.0)
