"""Names of files that DuckDB takes as they are: it reads some characters as a pattern, and knows UTF-8
alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flightlog.core.errors import UsageError

_MISREAD = frozenset("*?[]{}\\")


def path_text(path: str | os.PathLike[str]) -> str:
    """A path to show, on one line of characters that every output takes; the others are spelled out, as
    Python does.
    """
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text
    )


def is_plain(path: Path) -> bool:
    """Whether a path means itself to DuckDB, and nothing else."""
    text = os.fspath(path)
    return text.isprintable() and not _MISREAD.intersection(text)  # half of a character is not printable


@contextmanager
def plain_scratch() -> Iterator[Path]:
    """A folder with a plain name, for this process alone, that goes away with the context. Raises OSError.

    Where the folder of temporary files has no plain name, it is called by its number, on systems that can; a
    `UsageError` on others.
    """
    from tempfile import TemporaryDirectory  # a process that only records needs it not

    with TemporaryDirectory(prefix="flightlog-") as made:
        folder = Path(made)
        if is_plain(folder):
            yield folder
            return
        fd = os.open(folder, os.O_RDONLY)
        try:
            numbered = Path(f"/proc/self/fd/{fd}")
            if not numbered.is_dir():
                raise UsageError(
                    f"the folder of temporary files, {path_text(folder.parent)}, has a name that "
                    "cannot be read as it is: name another one in TMPDIR"
                )
            yield numbered
        finally:
            os.close(fd)


class PlainPaths:
    """Plain names of files and folders: their own, or those of links in the folder `scratch`, which has to be
    plain.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._links: dict[Path, Path] = {}

    def folder(self, path: Path) -> Path:
        """A plain name of a folder, also of one that is to be made. Raises OSError."""
        path = path.absolute()
        return path if is_plain(path) else self._link(path)

    def file(self, path: Path) -> Path:
        """A plain name of a file that is there; of one that is to be made, if the last part of its name is
        plain.

        Raises OSError.
        """
        path = path.absolute()
        if is_plain(path):
            return path
        return self.folder(path.parent) / path.name if is_plain(Path(path.name)) else self._link(path)

    def _link(self, path: Path) -> Path:
        link = self._links.get(path)
        if link is None:
            ending = path.suffix if path.suffix in {".jsonl", ".parquet"} else ""
            link = self._scratch / f"link-{os.urandom(8).hex()}{ending}"
            link.symlink_to(path)
            self._links[path] = link
        return link
