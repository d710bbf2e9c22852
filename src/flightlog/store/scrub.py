"""Secrets taken out of what was recorded: every text file of a run that has ended, rewritten with the
redactor.

In steps, so that a kill at any moment leaves each file old or new, and doing it again goes on:

1. every file that holds a secret gets a cleaned copy beside it, on the disk;
2. a note says which files are about to change;
3. the copies take their places, by renaming;
4. what is made of these files (summary, snapshots) is made again, their checksums are renewed, and the note
   goes.

Lines stay lines: as many as before, in their order, with their numbers; those without a secret stay as they
are, byte by byte. A file that did not match its checksum before does not match it afterwards, so damage stays
visible.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.core.redaction import BY_NAME, REDACTED, is_secret, kind_of_secret, redact_command, redact_text
from flightlog.store import layout
from flightlog.store.documents import is_leftover, read_document, sync_folder, write_document
from flightlog.store.index import index_file
from flightlog.store.integrity import FileSum, files_in, note_checksum, sum_of
from flightlog.store.liveness import here
from flightlog.store.remote.state import has_settled, sole_uploader
from flightlog.store.run import Run
from flightlog.store.write.finalize import finalizing, seal

NOTE = ".scrub.tmp"
"""Stands in the run while it is being scrubbed; a leftover to all readers."""

Rewrite = Callable[[str], str]
Rebuild = Callable[[Run], Iterable[str]]
"""Makes again what is made of the lines, and gives the files that it wrote, by their paths within the run."""


class ScrubbedFile(Struct, frozen=True, kw_only=True):
    """One file with secrets in it."""

    path: str
    """Within the run, with `/`."""
    texts: int
    """How many texts were cleaned."""
    kinds: tuple[str, ...]
    """What they held, in words."""


class Scrubbed(Struct, frozen=True, kw_only=True):
    """What came of scrubbing a run, or would."""

    run_id: str
    files: tuple[ScrubbedFile, ...]
    unread: tuple[str, ...]
    """Files that hold no text, and were not looked into."""
    folder_kind: str | None
    """What kind of secret the folder's name holds: it is not renamed."""


class _Note(Struct, frozen=True):
    """`.scrub.tmp`: the files that change and were as their checksums say."""

    files: list[str]


def scrub_run(
    path: Path,
    *,
    dry_run: bool = False,
    special: Mapping[str, Rewrite] | None = None,
    rebuild: Rebuild = lambda _run: (),
    step: Callable[[str], None] = lambda _done: None,
) -> Scrubbed:
    """Take the secrets out of a run that has ended, or only say where they are; a `UsageError` for one that
    is running.

    `special` names files that are rewritten in a way of their own. `step` is told what was just done, for
    tests.
    """
    run = Run(path)
    if not _has_ended(run):
        raise UsageError(
            f"{run.run_id} is running: what it writes next could hold secrets again; scrub it when it "
            "has ended"
        )
    if dry_run:
        return _scrub(path, run.run_id, special or {}, None, step)
    with finalizing(path, wait_s=5.0) as alone, sole_uploader(path) as other:
        if not alone or other is not None:
            raise UsageError(
                f"{run.run_id} is being worked on by {other or 'another process'}; try again later"
            )
        seal(path, writers_alive=here().writer_alive)  # lines of a killed run move into its files
        _clear_leftovers(path)
        return _scrub(path, run.run_id, special or {}, rebuild, step)


def _has_ended(run: Run) -> bool:
    """Whether nobody writes into a run any more; where `run.json` is damaged, its processes tell."""
    if run.status in layout.ENDED:
        return has_settled(run.path, run.observer)
    return not run.is_written()


def _scrub(
    path: Path,
    run_id: str,
    special: Mapping[str, Rewrite],
    rebuild: Rebuild | None,
    step: Callable[[str], None],
) -> Scrubbed:
    """Without `rebuild`, nothing is changed."""
    found: list[ScrubbedFile] = []
    fresh: dict[str, Path] = {}
    unread: list[str] = []
    for name in sorted(files_in(path, but={layout.PARQUET})):
        if name == layout.CHECKSUMS:
            continue
        file = path / name
        cleaned = _Cleaned(file, special.get(name), by_name=not name.startswith(f"{layout.FOLLOWERS}/"))
        made = None if rebuild is None else file.with_name(f".{file.name}.scrub-{os.getpid()}.tmp")
        cleaned.write(made)
        if cleaned.unreadable:
            unread.append(name)
        if cleaned.texts:
            found.append(ScrubbedFile(path=name, texts=cleaned.texts, kinds=tuple(sorted(cleaned.kinds))))
            step(f"cleaned {name}")
        if made is not None and cleaned.texts:
            fresh[name] = made
        elif made is not None:
            made.unlink()
    note = path / NOTE
    began = read_document(note, _Note).value
    if rebuild is not None and (fresh or began is not None):
        noted = read_document(path / layout.CHECKSUMS, dict[str, FileSum]).value or {}
        whole = [name for name in fresh if name in noted and noted[name] == sum_of(path / name)]
        write_document(note, _Note(sorted({*whole, *(began.files if began else ())})), durable=True)
        step("noted")
        _put_in_place(path, fresh, step)
        _make_again(path, rebuild, step)
    return Scrubbed(
        run_id=run_id, files=tuple(found), unread=tuple(unread), folder_kind=kind_of_secret(path.name)
    )


def _put_in_place(path: Path, fresh: Mapping[str, Path], step: Callable[[str], None]) -> None:
    for name, made in fresh.items():
        made.replace(path / name)
        step(f"replaced {name}")
    for folder in {made.parent for made in fresh.values()}:
        sync_folder(folder)


def _make_again(path: Path, rebuild: Rebuild, step: Callable[[str], None]) -> None:
    """Make again what holds copies, renew the checksums of what changed, and forget that there was something
    to do.
    """
    folder = path / layout.PARQUET
    compacted = folder.is_dir() and {one.name for one in folder.iterdir()} != {layout.KEPT_REPORT}
    shutil.rmtree(folder, ignore_errors=True)
    index_file(path.parent).unlink(missing_ok=True)  # a cache
    step("removed copies")
    if compacted:
        folder.mkdir()  # says to whoever goes on that there were snapshots
    made = list(rebuild(Run(path)))
    note = read_document(path / NOTE, _Note).value
    note_checksum(path, *sorted({*made, *(note.files if note else ())}))
    step("renewed checksums")
    (path / NOTE).unlink(missing_ok=True)
    sync_folder(path)


def _clear_leftovers(path: Path) -> None:
    """Remove documents whose writing was cut short: they may hold secrets, and nobody reads them."""
    for folder, _, names in os.walk(path):
        for name in names:
            if is_leftover(name) and name != NOTE:
                Path(folder, name).unlink(missing_ok=True)


class _Cleaned:
    """One file without its secrets, in a copy beside it."""

    def __init__(self, file: Path, special: Rewrite | None, *, by_name: bool) -> None:
        self.texts = 0
        self.kinds: set[str] = set()
        self.unreadable = False
        self._file, self._special, self._by_name = file, special, by_name

    def write(self, made: Path | None) -> None:
        """Look at the file, and write the copy, on the disk, where one is wanted."""
        with self._file.open("rb") as source, Path(made or os.devnull).open("wb") as out:
            if self._file.suffix == ".jsonl" and self._special is None:
                for line in source:
                    out.write(self._line(line))
            else:
                out.write(self._whole(source.read()))
            if made is not None:
                out.flush()
                os.fsync(out.fileno())
        if made is not None:
            shutil.copymode(self._file, made)

    def _whole(self, data: bytes) -> bytes:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self.unreadable = True
            return data
        if self._special is not None:
            return self._text(text, self._special).encode()
        if "\0" in text:
            self.unreadable = True
            return data
        if self._file.suffix in {".json", ".lock"}:
            return self._document(text, indent=2) or self._text(text).encode("utf-8", "surrogatepass")
        return self._text(text).encode("utf-8", "surrogatepass")

    def _line(self, line: bytes) -> bytes:
        body = line.rstrip(b"\r\n")
        text = body.decode("utf-8", "surrogateescape")
        made = self._document(text, indent=None)
        if made is None:  # torn, or no JSON at all
            made = self._text(text).encode("utf-8", "surrogateescape")
        return made + line[len(body) :]

    def _document(self, text: str, *, indent: int | None) -> bytes | None:
        """A JSON text; the very same bytes where it holds no secret, and None where it is no JSON."""
        before = self.texts
        try:
            found = json.loads(text)
            cleaned = self._value(found, "")
        except (ValueError, RecursionError):
            self.texts = before
            return None
        if self.texts == before:
            return text.encode("utf-8", "surrogateescape")
        separators = (",", ":") if indent is None else (",", ": ")
        try:
            made = json.dumps(cleaned, ensure_ascii=False, separators=separators, indent=indent).encode()
        except UnicodeEncodeError:
            made = json.dumps(cleaned, separators=separators, indent=indent).encode()
        return made + b"\n" * (indent is not None)

    def _value(self, value: Any, key: str) -> Any:
        if isinstance(value, str):
            if self._by_name and value != REDACTED and is_secret(key, value):
                self._count(BY_NAME)
                return REDACTED
            return self._text(value)
        if isinstance(value, dict):
            return {
                self._text(name): inner if name == "nonfinite" else self._value(inner, name)
                for name, inner in value.items()
            }
        if isinstance(value, list):
            if key == "command" and all(isinstance(item, str) for item in value):
                made = redact_command(value)
                for before, after in zip(value, made, strict=True):
                    if before != after:
                        self._count(kind_of_secret(before) or "password on a command line")
                return made
            return [self._value(item, key) for item in value]
        return value

    def _text(self, text: str, rewrite: Rewrite = redact_text) -> str:
        made = rewrite(text)
        if made != text:
            self._count(kind_of_secret(text) or BY_NAME)
        return made

    def _count(self, kind: str) -> None:
        self.texts += 1
        self.kinds.add(kind)
