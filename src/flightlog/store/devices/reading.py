"""One reading of telemetry, whatever it stands in: events one by one in bounded memory, and what was
skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from errno import ENOENT
from itertools import chain
from pathlib import Path

from flightlog.events.devices.event import TelemetryEvent
from flightlog.events.devices.identity import stable_legacy_session_id
from flightlog.store.devices.arrays import TelemetryDocument
from flightlog.store.devices.lines import TelemetryLines
from flightlog.store.devices.manifest import MANIFEST, SinkManifest, read_manifest, segment_paths
from flightlog.store.devices.records import RecordReader
from flightlog.store.devices.tally import Tally


class TelemetryReading:
    """The events of a JSON file, a file of JSON lines, either of them packed by gzip, or a sink folder.

    Iterate once: events come in the order of the files, and the counts `read`, `skipped`, `torn` and
    `problems` are right when the iteration has ended. Memory does not grow with the number of events. Bad
    records are skipped and counted; with `strict` the first one raises ValueError. What cannot be opened
    raises OSError.

    Records that name no session belong to one made of the path: the same file has the same session each time.
    """

    def __init__(
        self,
        path: str | Path,
        permissive_legacy: bool = True,
        events_key: str | None = None,
        *,
        strict: bool = False,
    ) -> None:
        self.path = Path(path)
        self.manifest: SinkManifest | None = read_manifest(self.path)
        """The sink folder's manifest, where there is one."""
        self._permissive, self._key = permissive_legacy, events_key
        self._tally = Tally(strict=strict)

    @property
    def read(self) -> int:
        """How many events were given out."""
        return self._tally.read

    @property
    def skipped(self) -> int:
        """How many records were not: each breaks a rule, or is none."""
        return self._tally.skipped

    @property
    def torn(self) -> int:
        """How many files end in the middle of a record."""
        return self._tally.torn

    @property
    def problems(self) -> list[str]:
        """What was skipped and why, in sentences, the first ones one by one."""
        return self._tally.warnings()

    def __iter__(self) -> Iterator[TelemetryEvent]:
        return chain.from_iterable(self.batches())

    def batches(self) -> Iterator[list[TelemetryEvent]]:
        """The events in lists of about a thousand, none of them empty."""
        for _, batch in self.by_source():
            if batch:
                yield batch

    def by_source(self) -> Iterator[tuple[Path, list[TelemetryEvent]]]:
        """The events with the file they stand in; each file comes at least once, with an empty list if need
        be.
        """
        segments = segment_paths(self.path, self.manifest)
        if segments or self._is_sink():
            for segment in segments:
                yield segment, []
                try:
                    for batch in TelemetryLines(segment, self._reader(segment), self._tally).batches():
                        yield segment, batch
                except FileNotFoundError:
                    self._tally.note_gone(segment)
            return
        if self.path.is_dir():
            raise FileNotFoundError(ENOENT, "no telemetry segments in this folder", str(self.path))
        document = TelemetryDocument(self.path, self._key, self._reader(None), self._tally)
        for batch in document.batches():
            yield self.path.resolve(), batch

    def session_of(self, segment: Path) -> str:
        """The session of a segment's records that name none: the manifest's, or one made of the path."""
        named = (
            entry.session_id
            for entry in (self.manifest.segments if self.manifest else [])
            if entry.filename == segment.name
        )
        return next(named, None) or stable_legacy_session_id(str(self.path.resolve()), "sink")

    def fail_if_nothing_was_read(self) -> None:
        """Raise the first problem where there were bad records and no others."""
        if self._tally.skipped and not self._tally.read:
            self._tally.raise_first()

    def _is_sink(self) -> bool:
        return self.manifest is not None and (self.path.is_dir() or self.path.name == MANIFEST)

    def _reader(self, segment: Path | None) -> RecordReader:
        if segment is not None:
            return RecordReader(self.session_of(segment), self._permissive)
        session = stable_legacy_session_id(str(self.path.resolve()), self._key or "json")
        return RecordReader(session, self._permissive)
