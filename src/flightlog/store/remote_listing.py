"""Which runs stand at an address, and whether they changed: from one listing, without reading anything."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from msgspec import Struct

from flightlog.store import layout
from flightlog.store.remote_manifest import FOLDER, parse_note_name
from flightlog.store.remote_objects import Listed, Objects


class RunListed(Struct, frozen=True):
    """The objects of one run, by their names from the run's folder on."""

    objects: Mapping[str, Listed]

    @property
    def version(self) -> str:
        """Changes when anything of the run does."""
        return _digest(f"{name} {self.stamp(name)}" for name in sorted(self.objects))

    def stamp(self, name: str) -> str:
        """Changes when an object does; empty where there is none."""
        found = self.objects.get(name)
        return "" if found is None else f"{found.size} {found.stamp}"

    @property
    def has_notes(self) -> bool:
        """Whether notes say which objects make up which files; else the objects are the files."""
        return any(_is_note(name) for name in self.objects)

    def stands_alone(self, document: str) -> bool:
        """Whether a document is the object of its name; of a run that goes on it may be a piece that a note
        names.
        """
        pieces = (name for name in self.objects if name.startswith(f"{FOLDER}/") and f"/{document}/" in name)
        return document in self.objects and next(pieces, None) is None

    def document(self, name: str) -> str:
        """Changes when a document of the run may have changed; empty where there is none."""
        if self.stands_alone(name):
            return self.stamp(name)
        return _digest(sorted(name for name in self.objects if _is_note(name))) if self.has_notes else ""


def list_remote(objects: Objects, only: str | None = None) -> dict[str, RunListed]:
    """The runs under an address by their folders' names, or one of them; none where nothing stands there.

    What is neither named as a run nor holds a `run.json` is none.
    """
    runs: dict[str, dict[str, Listed]] = {}
    for one in objects.find("" if only is None else only):
        run_id, _, name = one.name.partition("/")
        if name and not one.folder and run_id and not run_id.startswith("."):
            runs.setdefault(run_id, {})[name] = one
    return {
        run_id: RunListed(found)
        for run_id, found in runs.items()
        if layout.is_run_id(run_id) or layout.RUN in found
    }


def _is_note(name: str) -> bool:
    return name.startswith(f"{FOLDER}/") and name.count("/") == 1 and parse_note_name(name) is not None


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:32]
