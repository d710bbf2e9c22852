"""A job's telemetry on disk: `telemetry/jobs/<job>/summary.json` and `spans.jsonl`."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any
from weakref import WeakSet
from zlib import crc32

import msgspec

from flightlog.compat.limits import CompatLimits
from flightlog.compat.modelops.telemetry.collector import (
    HasSpans,
    SpanLike,
    TelemetryCollector,
    TelemetrySpan,
)
from flightlog.core.locks import locked
from flightlog.export.modelops import SPANS, SUMMARY, ModelOpsSummary, job_folder, job_name
from flightlog.record.values import encodable, text_of
from flightlog.store.documents import replace_bytes, write_document

logger = logging.getLogger("flightlog.compat.modelops")

_uploads: WeakSet[threading.Thread] = WeakSet()


class TelemetryStorage:
    """Saves the spans of collectors; never fails a job: errors are logged as warnings.

    Any number of threads and processes may save at once. Files are replaced atomically, and both files of a
    job are from the last save.
    """

    def __init__(
        self,
        storage_dir: str | os.PathLike[str],
        prov_store: Any | None = None,
        *,
        upload_to_azure: bool = True,
        upload_wait_s: float = 5.0,
        share_of_jobs: float = 1.0,
    ) -> None:
        """Save below `storage_dir`; a `prov_store` that supports remote uploads also uploads the job's
        folder, unless `upload_to_azure` is False.

        Of many jobs, a `share_of_jobs` such as 0.1 saves that part: always the same ones, by their ids.

        The upload runs on a thread of its own. A job waits for it at most `upload_wait_s` seconds, and the
        end of the program for `CompatLimits.upload_exit_wait_s`.
        """
        self.storage_dir = Path(storage_dir)
        self.prov_store = prov_store
        self.upload_to_azure = upload_to_azure
        self.share_of_jobs = share_of_jobs
        self.upload_wait_s = upload_wait_s

    def save_job_telemetry(self, job_id: str, telemetry: HasSpans, job_type: str = "simulation") -> None:
        """Write both files of a job, replacing earlier ones. Open spans are included, without an end.

        `telemetry` is a `TelemetryCollector`, or anything else with `spans`.

        An id that is no valid folder name is percent-encoded: `a/b` becomes `a%2Fb`.
        """
        if crc32(text_of(job_id).encode("utf-8", "surrogatepass")) >= self.share_of_jobs * 2**32:
            return
        try:
            folder = job_folder(self.storage_dir, text_of(job_id))
            folder.mkdir(parents=True, exist_ok=True)
            self._write(folder, encodable(text_of(job_id)), telemetry, encodable(text_of(job_type)))
        except Exception as error:  # noqa: BLE001 - telemetry fails no job
            logger.warning("Failed to save telemetry for %s: %s", text_of(job_id), text_of(error))
            return
        logger.info("Saved telemetry: %s", folder / SUMMARY)
        if self.upload_to_azure:
            self._upload_to_azure(folder, text_of(job_id))

    def load_summary(self, job_id: str) -> dict[str, Any] | None:
        """A job's summary; None where there is none."""
        with suppress(FileNotFoundError):
            loaded: dict[str, Any] = msgspec.json.decode(
                (job_folder(self.storage_dir, job_id) / SUMMARY).read_bytes()
            )
            return loaded
        return None

    def load_spans(self, job_id: str) -> list[dict[str, Any]]:
        """A job's spans, in the order of the file; empty without a file. Invalid lines are skipped with a
        warning.
        """
        file = job_folder(self.storage_dir, job_id) / SPANS
        spans: list[dict[str, Any]] = []
        with suppress(FileNotFoundError):
            for number, line in enumerate(file.read_bytes().splitlines(), 1):
                try:
                    spans.append(msgspec.json.decode(line))
                except msgspec.DecodeError as error:
                    logger.warning("%s:%d is left out: %s", file, number, error)
        return spans

    def _write(self, folder: Path, job_id: str, telemetry: HasSpans, job_type: str) -> None:
        summary, lines = ModelOpsSummary(job_type), []
        spans = telemetry.all_spans() if isinstance(telemetry, TelemetryCollector) else telemetry.spans
        for found in spans:
            try:
                span = found if isinstance(found, TelemetrySpan) else _copied(found)
                line = span.to_dict()
                encoded = msgspec.json.encode(line)
                summary.add(
                    line["name"], *span.interval_ns(), line["metrics"], failed="error" in line["tags"]
                )
            except Exception as error:  # noqa: BLE001 - one span that is none does not cost the others
                logger.warning("Left a span out of the telemetry of %s: %s", job_id, text_of(error))
                continue
            lines.append(encoded)
        with locked(folder, wait_s=None, create=False):
            replace_bytes(folder / SPANS, b"".join(line + b"\n" for line in lines))
            write_document(folder / SUMMARY, {"job_id": job_id, **summary.to_dict()})

    def _upload_to_azure(self, folder: Path, job_id: str) -> None:
        """Let the provenance store upload the folder, if it can, without delaying the job for long."""
        send, prefix = _upload_of(self.prov_store), f"telemetry/jobs/{job_name(job_id)}"
        if send is None:
            return

        def upload() -> None:
            try:
                send(folder, prefix)
            except Exception as error:  # noqa: BLE001 - the files are here, and telemetry fails no job
                logger.warning(
                    "Failed to upload telemetry to %s: %s; it is in %s", prefix, text_of(error), folder
                )
            else:  # the store may have swallowed an error of its own: this is all that can be said
                logger.info("Handed telemetry to the provenance store: %s", prefix)

        thread = threading.Thread(target=upload, name=f"upload of {prefix}", daemon=True)
        _uploads.add(thread)
        thread.start()
        thread.join(self.upload_wait_s)
        if thread.is_alive():
            logger.warning(
                "The upload of telemetry to %s takes longer than %g s and goes on in the background; it is "
                "in %s",
                prefix,
                self.upload_wait_s,
                folder,
            )


def _copied(span: SpanLike) -> TelemetrySpan:
    """The span of another collector."""
    return TelemetrySpan(**{one.name: getattr(span, one.name) for one in fields(TelemetrySpan)})


def _upload_of(store: Any) -> Callable[[Path, str], object] | None:
    """How a provenance store uploads a folder under a prefix; None where it does not.

    Older ones of ModelOps have no public interface for it.
    """
    send: Callable[[Path, str], object] | None = None
    try:
        supported = getattr(store, "supports_remote_uploads", None)
        if getattr(store, "_azure_backend", None):
            send = store._upload_to_azure
        elif supported is not None and supported():
            send = store.upload_directory
    except Exception as error:  # noqa: BLE001 - telemetry fails no job
        logger.warning("Failed to upload telemetry: %s", text_of(error))
    return send


@atexit.register
def _finish_uploads() -> None:
    """Wait for uploads that are longer than their jobs, for a bounded time."""
    left = [thread for thread in _uploads if thread.is_alive()]
    deadline = time.monotonic() + CompatLimits.upload_exit_wait_s
    for thread in left:
        logger.warning("The program waits for the %s", thread.name)
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            logger.warning("The %s was given up; the files are in their folder", thread.name)
