"""`scalable report`, `advise` and `diagnose` as `flightlog`'s commands of these names.

    python -m flightlog.compat.scalable report --last
    python -m flightlog.compat.scalable report --compare run-abc123 run-def456
    python -m flightlog.compat.scalable advise --task run_simulation

The folder of runs is that of `SCALABLE_RUNS_DIR`, or `.scalable/runs`. All of `flightlog`'s commands and
options work.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import runpy
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from flightlog.adopt.scalable import adopter as recorder
from flightlog.compat.scalable.manifest import EnvironmentVariables

PROGRAM = "python -m flightlog.compat.scalable"
READING = ("advise", "diagnose", "report")


log = logging.getLogger("flightlog")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns `flightlog`'s exit code."""
    words, output = as_flightlog(sys.argv[1:] if argv is None else argv)
    variables = EnvironmentVariables()
    variables.put()
    try:
        _warn_of_scalable_run(words)
        return _run(words) if output is None else _run_into(output, words)
    finally:
        variables.take_back()


def _warn_of_scalable_run(words: Sequence[str]) -> None:
    """Warn where a command names a run that Scalable itself recorded, and say how to read it."""
    folder = Path(os.environ.get("FLIGHTLOG_RUNS_DIR", ""))
    for before, word in pairwise(words):
        folder = Path(word) if before == "--runs-dir" else folder
    try:
        named = [folder / word.removeprefix("--run-id=") for word in words if "run-" in word]
        found = [run for run in named or sorted(folder.glob("run-*"))[-1:] if recorder.recognize(run)]
    except (OSError, ValueError):  # no such folder or run: the command says so
        return
    if found and words[0] in READING:
        log.warning(
            "%s was recorded by Scalable, in its own form: `flightlog adopt %s` makes a run of it that can "
            "be read",
            found[0].name,
            found[0],
        )


def as_flightlog(words: Sequence[str]) -> tuple[list[str], Path | None]:
    """The arguments of `flightlog`, and the output file of a command that has no option for it."""
    command, rest = (words[0], list(words[1:])) if words else ("--help", [])
    if command == "diagnose":
        return _diagnose(rest)
    if command == "advise":
        return _advise(rest)
    return [command, *rest], None


def _diagnose(words: list[str]) -> tuple[list[str], Path | None]:
    known = _parser("diagnose")
    known.add_argument("--run-id")
    known.add_argument("--latest", "--last", action="store_true")
    known.add_argument("--no-ai", action="store_true")
    found, others = known.parse_known_args(words)
    if found.run_id is not None and found.latest:
        known.error("name one run: --run-id or --latest")
    run = [found.run_id] if found.run_id is not None else ["latest"] if found.latest else []
    return ["diagnose", *run, *others], found.output


def _advise(words: list[str]) -> tuple[list[str], Path | None]:
    known = _parser("advise")
    known.add_argument("--model-type")
    found, others = known.parse_known_args(words)
    if found.model_type is not None:
        log.warning(
            "--model-type is left out: advice comes from what was measured; `flightlog predict` learns from "
            "it"
        )
    return ["advise", *others], found.output


def _parser(command: str) -> argparse.ArgumentParser:
    """A parser of the options that `flightlog` does not have; it leaves all others to `flightlog`."""
    made = argparse.ArgumentParser(f"{PROGRAM} {command}", add_help=False, allow_abbrev=False)
    made.add_argument("--output", "-o", type=Path)
    return made


def _run(words: list[str]) -> int:
    """Run `python -m flightlog` with these arguments; layers above this one are not imported from here."""
    before = sys.argv
    sys.argv = ["flightlog", *words]
    try:
        runpy.run_module("flightlog", run_name="__main__", alter_sys=True)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    finally:
        sys.argv = before
    return 0


def _run_into(output: Path, words: list[str]) -> int:
    """Run a command with its output in a file, which stays as it is where the command prints nothing."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = _run(words)
    if printed.getvalue():
        try:
            output.write_text(printed.getvalue(), encoding="utf-8")
        except OSError as error:
            _parser(words[0]).error(f"cannot write {output}: {error.strerror or error}")
    return code
