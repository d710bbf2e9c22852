"""What the run left behind."""

from __future__ import annotations

from msgspec import Struct

from flightlog.events import ArtifactRecorded, Event

LISTED = 100
"""How many artifacts a summary lists; `count` is of all."""


class Artifact(Struct, frozen=True, kw_only=True):
    """One output, as it was recorded last."""

    name: str
    uri: str
    kind: str | None
    size_bytes: int | None
    sha256: str | None
    timestamp: str
    error: str | None


class ArtifactSummary(Struct, frozen=True, kw_only=True):
    """All outputs, each address once: a file that was recorded again counts as it was then."""

    count: int
    size_bytes: int | None
    """Sum of the known sizes; null where none is known."""
    unknown_sizes: int
    listed: list[Artifact]
    """The latest ones, oldest first."""


class ArtifactTally:
    """Takes the events of the stream `artifacts`, in any order."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[tuple[str, str, int, str], ArtifactRecorded]] = {}

    def add(self, event: Event) -> None:
        """Take one event."""
        if not isinstance(event, ArtifactRecorded):
            return
        order = (event.timestamp, event.writer, event.seq, event.sha256 or "")
        known = self._latest.get(event.uri)
        if known is None or order > known[0]:
            self._latest[event.uri] = (order, event)

    def summary(self) -> ArtifactSummary:
        """The result."""
        latest = [event for _, event in self._latest.values()]
        latest.sort(key=lambda event: (event.timestamp, event.writer, event.seq, event.uri))
        sizes = [event.size_bytes for event in latest if event.size_bytes is not None]
        return ArtifactSummary(
            count=len(latest),
            size_bytes=sum(sizes) if sizes else None,
            unknown_sizes=len(latest) - len(sizes),
            listed=[
                Artifact(
                    name=event.name,
                    uri=event.uri,
                    kind=event.kind,
                    size_bytes=event.size_bytes,
                    sha256=event.sha256,
                    timestamp=event.timestamp,
                    error=event.error,
                )
                for event in latest[-LISTED:]
            ],
        )
