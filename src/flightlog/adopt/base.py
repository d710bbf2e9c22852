"""What it takes to adopt a kind of recording, and what is said of it afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from flightlog.store.adopted import Adoption

if TYPE_CHECKING:
    from flightlog.adopt.making import RunMaker


__all__ = ["AdoptOptions", "Adopter", "Adoption", "Source"]


class AdoptOptions(Struct, frozen=True, kw_only=True):
    """What the user asked for beside the path."""

    project: str | None = None
    """The project of the run; by default the recording tells."""
    mapping: Path | None = None
    """The file that says what the fields of a plain JSONL file mean."""


class Source(Struct, frozen=True):
    """One recording that becomes one run."""

    path: Path
    files: tuple[Path, ...]
    """Every file that is read of it, in a fixed order: their content is what the recording is."""


class Adopter(Protocol):
    """A kind of recording that can be made into runs. Never changes a file of the recording."""

    name: str
    """What `--kind` calls it."""
    title: str
    """What it is, in words: `Scalable run directory`."""

    def recognize(self, path: Path) -> str | None:
        """Why the path is of this kind, in a few words; None where it is not. Looks at the beginning of files
        alone.
        """
        ...

    def sources(self, path: Path) -> Sequence[Source]:
        """The recordings at the path, in a fixed order; a `UsageError` where the path holds none that can be
        read.
        """
        ...

    def adopt(self, source: Source, maker: RunMaker) -> None:
        """Give the maker every event of one recording, and what there is to say of it.

        Memory does not grow with the recording. A `UsageError` where it holds nothing to adopt.
        """
        ...
