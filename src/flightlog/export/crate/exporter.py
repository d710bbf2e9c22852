"""A run as a Workflow Run RO-Crate, by the Provenance Run Crate profile: what ran, with what, and what came
of it.

<output>/
  ro-crate-metadata.json      the graph
  run/                        the run directory as it stands
  artifacts/                  artifacts that stood elsewhere, as far as they are what was recorded
  command.sh                  the command, where there was no manifest: a crate has a workflow
"""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flightlog.export.base import Exported, ExportOptions, refuse
from flightlog.export.crate.contents import RUN_FOLDER, copy_run, file_entity, place_artifacts
from flightlog.export.crate.graph import crate_graph
from flightlog.export.crate.steps import executions
from flightlog.export.crate.terms import COMMAND, CONTEXT, METADATA, ROOT, Entity, plain, ref
from flightlog.export.place import whole_folder
from flightlog.store import layout

if TYPE_CHECKING:
    from flightlog.store.run import Run

README = "README.md"


class CrateExporter:
    """`--to ro-crate`: a folder."""

    name = "ro-crate"
    what = "a Workflow Run RO-Crate (Provenance Run Crate profile), a folder"
    ending: str | None = ""

    def export(self, run: Run, output: Path | None, options: ExportOptions) -> Exported:
        """Write the crate; whole or not at all."""
        assert output is not None
        refuse(self.name, options)
        with whole_folder(output) as folder:
            counts, notes = _fill(run, folder)
        return Exported(to=self.name, where=str(output), counts=counts, notes=tuple(notes))


exporter = CrateExporter()


def _fill(run: Run, folder: Path) -> tuple[dict[str, int], list[str]]:
    """Make the crate in a folder; gives what it holds, and notes."""
    files = copy_run(run, folder)
    artifacts, notes = place_artifacts(run, folder)
    found, left = executions(run)
    notes += left
    if run.status == "running":
        notes.append("the run is running: the crate holds it as it was")
    tags = run.info.tags
    if not tags.get("author"):
        notes.append("no author is known: record with tags author and orcid to have one in the crate")
    if not tags.get("license"):
        notes.append("no license is known: record with a tag license to have it in the crate")
    notes += run.problems
    workflow = _workflow_file(run, folder, files)
    files.append(_readme(run, folder))
    entities = 0
    with (folder / METADATA).open("wb") as out:
        out.write(b'{"@context": ' + msgspec.json.encode(CONTEXT) + b', "@graph": [\n')
        for entity in crate_graph(run, files, artifacts, found, workflow):
            out.write((b",\n" if entities else b"") + msgspec.json.encode(plain(entity)))
            entities += 1
        out.write(b"\n]}\n")
    return {
        "entities": entities,
        "executions": len(found),
        "files": len(files),
        "artifacts": len(artifacts),
    }, notes


def _workflow_file(run: Run, folder: Path, files: list[Entity]) -> str:
    """The file that stands for the workflow: the manifest, or else the command, written down; its `@id`."""
    manifest = f"{RUN_FOLDER}/{layout.MANIFEST}"
    if any(entity["@id"] == manifest for entity in files):
        return manifest
    lines = ["#!/bin/sh", f"# The command of {' '.join(run.run_id.split())}, as it was recorded."]
    lines += [shlex.join(run.info.command)] if run.info.command else ["# It is not known."]
    data = ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")
    (folder / COMMAND).write_bytes(data)
    files.append(_written(folder, COMMAND, data))
    return COMMAND


def _readme(run: Run, folder: Path) -> Entity:
    when = f"\nStarted {run.info.start_time}.\n" if run.info.start_time else ""
    text = (
        f"# Run {run.run_id}\n\nA run of {run.info.project}, recorded by Flightlog {run.info.flightlog_version or ''}: "
        f"{run.status}.\n{when}\n`{METADATA}` tells what ran, with what, and what came of it (Workflow Run RO-Crate).\n"
        f"`{RUN_FOLDER}/` is the run directory: `flightlog report {RUN_FOLDER}` in this folder shows what happened.\n"
    )
    return {**_written(folder, README, text.encode("utf-8", "backslashreplace")), "about": ref(ROOT)}


def _written(folder: Path, name: str, data: bytes) -> Entity:
    (folder / name).write_bytes(data)
    return file_entity(Path(name), len(data), hashlib.sha256(data).hexdigest())
