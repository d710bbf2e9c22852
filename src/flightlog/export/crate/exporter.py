"""A run as a Workflow Run RO-Crate, by the Provenance Run Crate profile. Its steps are tasks, else outermost
spans, else the program.

<output>/
  ro-crate-metadata.json      the graph
  run/                        the run directory, unchanged
  artifacts/                  artifacts from elsewhere whose content is still what was recorded
  command.sh                  the command, where there was no manifest: a crate must have a workflow
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from mimetypes import MimeTypes
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from flightlog.core.time import moment as moment_ns
from flightlog.core.time import timestamp_of
from flightlog.events import ArtifactRecorded
from flightlog.export.base import Exported, ExportOptions, refuse, whole_folder
from flightlog.export.limits import ExportLimits
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.integrity import files_in, sum_of
from flightlog.store.tables.run_tables import open_tables

if TYPE_CHECKING:
    from flightlog.store.run import Run

Entity = dict[str, Any]
"""One node of the graph, as written to the file."""

METADATA = "ro-crate-metadata.json"
ROOT = "./"
COMMAND = "command.sh"
RUN_ACTION = "#run"
ENGINE_ACTION = "#engine-run"

CRATE = "https://w3id.org/ro/crate/1.1"
WORKFLOW_CRATE = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
_RUN_TERMS = "https://w3id.org/ro/terms/workflow-run#"
_WORKFLOW_TERMS = "https://bioschemas.org/"
CONTEXT: list[Any] = [
    f"{CRATE}/context",
    {
        "ComputationalWorkflow": f"{_WORKFLOW_TERMS}ComputationalWorkflow",
        "FormalParameter": f"{_WORKFLOW_TERMS}FormalParameter",
        "input": f"{_WORKFLOW_TERMS}ComputationalWorkflow#input",
        "resourceUsage": f"{_RUN_TERMS}resourceUsage",
        "sha256": f"{_RUN_TERMS}sha256",
    },
]
"""The terms that later versions of the context lack or have moved are spelled out."""

PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/ro/wfrun/provenance/0.5": "Provenance Run Crate",
    WORKFLOW_CRATE: "Workflow RO-Crate",
}
PARAMETER_PROFILE = "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"
WORKFLOW_PROFILE = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"

UNITS = {"_s": ("SEC", "seconds"), "_bytes": ("AD", "bytes")}
"""UN/CEFACT's code of a unit and its name, by the end of a column's name."""

_FAILED = "http://schema.org/FailedActionStatus"
STATUSES = {
    "completed": "http://schema.org/CompletedActionStatus",
    **dict.fromkeys(("failed", "cancelled", "interrupted", "crashed"), _FAILED),
}
"""Action statuses by state. The profile has no status for running and waiting."""
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
            files = copy_run(run, folder)
            artifacts, notes = place_artifacts(run, folder)
            found, left = executions(run)
            workflow = _workflow_file(run, folder, files)
            files.append(_readme(run, folder))
            entities = [plain(one) for one in crate_graph(run, files, artifacts, found, workflow)]
            graph = b",\n".join(map(msgspec.json.encode, entities))
            head = b'{"@context": ' + msgspec.json.encode(CONTEXT) + b', "@graph": [\n'
            (folder / METADATA).write_bytes(head + graph + b"\n]}\n")
        notes += left
        if run.status == "running":
            notes.append("the run is running: the crate holds it as it was")
        if not run.info.tags.get("author"):
            notes.append("no author is known: record with tags author and orcid to have one in the crate")
        if not run.info.tags.get("license"):
            notes.append("no license is known: record with a tag license to have it in the crate")
        counts = {"entities": len(entities), "executions": len(found)}
        counts |= {"files": len(files), "artifacts": len(artifacts)}
        return Exported(to=self.name, where=str(output), counts=counts, notes=(*notes, *run.problems))


exporter = CrateExporter()


def _workflow_file(run: Run, folder: Path, files: list[Entity]) -> str:
    """Write the workflow file: the manifest, else the command; returns its `@id`."""
    manifest = f"{RUN_FOLDER}/{layout.MANIFEST}"
    if any(entity["@id"] == manifest for entity in files):
        return manifest
    command = shlex.join(run.info.command) or "# It is not known."
    text = f"#!/bin/sh\n# The command of {' '.join(run.run_id.split())}, as it was recorded.\n{command}\n"
    files.append(_written(folder, COMMAND, text))
    return COMMAND


def _readme(run: Run, folder: Path) -> Entity:
    when = f"\nStarted {run.info.start_time}.\n" if run.info.start_time else ""
    text = (
        f"# Run {run.run_id}\n\nA run of {run.info.project}, recorded by Flightlog "
        f"{run.info.flightlog_version or ''}: "
        f"{run.status}.\n{when}\n`{METADATA}` tells what ran, with what, and what came of it (Workflow Run "
        "RO-Crate).\n"
        f"`{RUN_FOLDER}/` is the run directory: `flightlog report {RUN_FOLDER}` in this folder shows what "
        "happened.\n"
    )
    return {**_written(folder, README, text), "about": ref(ROOT)}


def _written(folder: Path, name: str, text: str) -> Entity:
    (folder / name).write_bytes(text.encode("utf-8", "backslashreplace"))
    return file_entity(folder, Path(name))


ENGINE, LANGUAGE, AGENT = "#engine", "#language", "#agent"
APPLICATION = "SoftwareApplication"
NO_LICENSE = "No license was stated when this was recorded"
ENGINES = {"dask": "distributed", "dragon": "dragonhpc", "ray": "ray", "slurm": "dask-jobqueue"}
"""The package behind a provider; the others are Flightlog's own."""


def crate_graph(
    run: Run, files: list[Entity], artifacts: list[CrateArtifact], found: list[Execution], workflow: str
) -> Iterator[Entity]:
    """Every entity once; `files` are those of the crate, `workflow` the `@id` of the workflow file among
    them.
    """
    info, tags, ending = run.info, run.info.tags, run.ending()
    person = _agent_id(tags) if tags.get("author") else None
    agent = None if person is None else ref(person)
    graph = StepGraph(found, artifacts, agent)
    packages = _packages(run)
    inside = {str(entity["@id"]): entity for entity in files}
    described = [one.entity for one in artifacts if one.entity["@type"] != "File"]
    for one in artifacts:
        if one.entity["@type"] == "File":
            inside[one.identifier] = {**inside.get(one.identifier, {}), **one.entity}

    yield make_entity(METADATA, "CreativeWork", conformsTo=refs([CRATE, WORKFLOW_CRATE]), about=ref(ROOT))
    mentioned = (one.identifier for one in found), (one["@id"] for one in described)
    yield make_entity(
        ROOT,
        "Dataset",
        name=f"Run {run.run_id}",
        description=f"Run of {info.project}, recorded by Flightlog: {run.status}, {len(found):,} executions",
        datePublished=moment(ending.end_time or info.start_time) or "1970-01-01",
        license=str(tags.get("license") or NO_LICENSE),
        conformsTo=refs(PROFILES),
        mainEntity=ref(workflow),
        hasPart=refs(inside),
        mentions=refs(chain([RUN_ACTION, ENGINE_ACTION], *mentioned)),
        author=agent,
    )
    for address, name in PROFILES.items():
        yield make_entity(address, "CreativeWork", name=name, version=address.rpartition("/")[2])
    changed = " with changes" if info.git_dirty else ""
    yield {
        **inside.pop(workflow),
        "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
        "name": info.project,
        "conformsTo": ref(WORKFLOW_PROFILE),
        "programmingLanguage": ref(LANGUAGE),
        "hasPart": refs(graph.tools.values()),
        "step": refs(graph.steps.values()),
        "softwareRequirements": refs(["#python", *(_package_id(*package) for package in packages.items())]),
        **known(version=info.git_commit and f"{info.git_commit}{changed}"),
    }
    yield from _software(run, packages, workflow)
    if person is not None:
        affiliation = str(tags.get("affiliation") or "")
        yield make_entity(person, "Person", name=str(tags["author"]), affiliation=affiliation)
    yield from inside.values()
    yield from described
    times = {"startTime": moment(info.start_time), "endTime": moment(ending.end_time)}
    used = {} if ending.duration_s is None else {"duration_s": ending.duration_s}
    yield make_entity(
        RUN_ACTION,
        "CreateAction",
        name=f"Run of {info.project}",
        description=f"{run.run_id}: {run.status}",
        instrument=ref(workflow),
        **times,
        actionStatus=STATUSES.get(run.status),
        error=(info.error or run.status) if STATUSES.get(run.status) == _FAILED else None,
        agent=agent,
        object=refs(one.identifier for one in artifacts if one.is_input),
        result=refs(one.identifier for one in artifacts if not one.is_input),
        resourceUsage=refs(f"{RUN_ACTION}-{name}" for name in used),
    )
    yield from usages(RUN_ACTION, used)
    yield make_entity(
        ENGINE_ACTION,
        "OrganizeAction",
        name=f"Execution by {info.provider or 'Python'}",
        instrument=ref(ENGINE),
        object=refs(graph.controls),
        result=ref(RUN_ACTION),
        **times,
        agent=agent,
    )
    yield from graph


def _software(run: Run, packages: dict[str, str], workflow: str) -> Iterator[Entity]:
    info = run.info
    name, other = ("sh", None) if workflow == COMMAND else ("Flightlog manifest", "YAML")
    yield make_entity(LANGUAGE, "ComputerLanguage", name=name, alternateName=other)
    yield make_entity(
        ENGINE,
        APPLICATION,
        name=info.provider or "Python",
        softwareVersion=packages.get(ENGINES.get(info.provider or "", "flightlog")),
        description=f"Engine of the run, on {info.host}" if info.host else None,
    )
    yield make_entity("#python", APPLICATION, name="Python", softwareVersion=info.python)
    for name, version in packages.items():
        yield make_entity(_package_id(name, version), APPLICATION, name=name, softwareVersion=version)


def _package_id(name: str, version: str) -> str:
    return f"pkg:pypi/{quote(name)}@{quote(version)}"


def _packages(run: Run) -> dict[str, str]:
    """The packages that were installed, by `environment.json`; none where it cannot be read."""
    found = read_document(run.path / layout.ENVIRONMENT, dict[str, Any]).value or {}
    packages = found.get("packages")
    pairs = packages.items() if isinstance(packages, dict) else ()
    return {str(name): str(version) for name, version in pairs}


def _agent_id(tags: dict[str, Any]) -> str:
    orcid = str(tags.get("orcid") or "").rstrip("/").rpartition("/")[2]
    return f"https://orcid.org/{quote(orcid)}" if orcid else AGENT


RUN_FOLDER = "run"
ARTIFACTS = "artifacts"
INPUT = "input"


_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+://(?:\[[0-9A-Fa-f:.]+\])?)(.*)", re.DOTALL)
"""An address: its scheme, with a host that is an IPv6 number, and the rest."""

_FORMATS = {
    **MimeTypes().types_map[True],
    ".jsonl": "application/jsonl",
    ".log": "text/plain",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
_DESCRIPTIONS = {
    layout.RUN: "Who, what and when of the run",
    layout.ENVIRONMENT: "Machine, Python and packages of the run",
    layout.RECORDER: "What recording cost, and what was lost",
    layout.SUMMARY: "Figures of the run",
    layout.CHECKSUMS: "Checksums of the run's files",
    layout.PLAN: "What the manifest came to",
    layout.LOCK: "Hashes and versions the run was made of",
    layout.MANIFEST: "What was asked for",
}


@dataclass(frozen=True)
class CrateArtifact:
    """An artifact as the graph names it."""

    entity: Entity
    task_id: str | None
    is_input: bool
    """Whether it was recorded as an input: `kind="input"`."""

    @property
    def identifier(self) -> str:
        """Its `@id`."""
        return str(self.entity["@id"])


def copy_run(run: Run, crate: Path) -> list[Entity]:
    """Copy the files of the run into the crate, and describe each; hidden ones and leftovers stay where they
    are.
    """
    found: list[Entity] = []
    for name in sorted(files_in(run.path, but=())):
        if any(part.startswith(".") for part in Path(name).parts):
            continue
        inside = Path(RUN_FOLDER, name)
        try:
            _copy(run.path / name, crate / inside)
        except FileNotFoundError:  # a tail that was folded meanwhile: its lines are in another file
            continue
        found.append(file_entity(crate, inside, description=_DESCRIPTIONS.get(inside.name)))
    return found


def place_artifacts(run: Run, crate: Path) -> tuple[list[CrateArtifact], list[str]]:
    """The artifacts of a run, with notes; files are copied if their content is still what was recorded.

    Addresses stay addresses. An artifact that is missing, unreadable, changed, a folder or too large is
    described by name, size and checksum. Of several records of one artifact, the latest counts.
    """
    events: dict[str, ArtifactRecorded] = {}
    more = False
    for event in run.events(ArtifactRecorded.stream):
        if isinstance(event, ArtifactRecorded):
            if len(events) < ExportLimits.max_artifacts or event.uri in events:
                events[event.uri] = event
            else:
                more = True
    found: list[CrateArtifact] = []
    left: Counter[str] = Counter()
    for number, event in enumerate(events.values()):
        entity, why = _placed(event, number, run.path.resolve(), crate)
        found.append(CrateArtifact(entity, event.task_id, event.kind == INPUT))
        left.update([why] if why else [])
    notes = [f"not copied, only described: {number:,} {why}" for why, number in left.items()]
    if more:
        notes.append(f"only the first {ExportLimits.max_artifacts:,} artifacts are in the crate")
    return found, notes


def file_entity(
    crate: Path, inside: Path, *, name: str | None = None, description: str | None = None
) -> Entity:
    """A file that is in the crate."""
    found = sum_of(crate / inside)
    return make_entity(
        _path_id(inside),
        "File",
        name=name or os.fsencode(inside.name).decode(errors="backslashreplace"),
        description=description,
        encodingFormat=_FORMATS.get(inside.suffix),
        contentSize=str(found.size_bytes),
        sha256=found.sha256,
    )


def _placed(event: ArtifactRecorded, number: int, run: Path, crate: Path) -> tuple[Entity, str | None]:
    more = known(
        name=event.name,
        description=event.kind,
        contentSize=None if event.size_bytes is None else str(event.size_bytes),
        sha256=event.sha256,
    )
    address = _ADDRESS.fullmatch(event.uri)
    if address is not None:
        rest = quote(address[2], safe="/:?#@!$&'()*+,;=%~")  # blanks, and what stands for a secret
        return {"@id": f"{address[1]}{rest}", "@type": "File", **more}, None
    described: Entity = {"@id": f"#artifact-{number}", "@type": "CreativeWork", **more}
    source = Path(event.uri)
    if source.is_relative_to(run):
        inside = Path(RUN_FOLDER) / source.relative_to(run)
        if (crate / inside).is_file():
            return {**described, "@id": _path_id(inside), "@type": "File"}, None
    if event.files is not None:
        return described, "folders"
    if not source.is_file():
        return described, "artifacts that no longer exist"
    try:
        with source.open("rb"):
            large = source.stat().st_size > ExportLimits.max_copied_artifact_bytes
    except OSError:
        return described, "artifacts that cannot be read"
    if large:
        return described, f"artifacts of over {ExportLimits.max_copied_artifact_bytes // 1_000_000} MB"
    long = len(os.fsencode(source.name)) > ExportLimits.max_artifact_name_bytes
    inside = Path(ARTIFACTS) / f"{number}-{'artifact' if long else source.name}"
    _copy(source, crate / inside)
    copied = file_entity(crate, inside, name=event.name, description=event.kind)
    if event.sha256 is not None and copied["sha256"] != event.sha256:
        (crate / inside).unlink()
        return described, "artifacts that have changed since"
    return copied, None


def _path_id(inside: Path) -> str:
    """The `@id` of a file of the crate; names that are no text go by their bytes."""
    return quote(os.fsencode(inside.as_posix()))


def _copy(source: Path, target: Path) -> None:
    """Copy a file as it is now, with its times."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


USED = (
    *("duration_s", "queue_s", "cpu_s", "gpu_s"),
    *("peak_rss_bytes", "gpu_peak_bytes", "read_bytes", "write_bytes"),
)
"""Columns of `attempts` with the resource usage of an execution; of a span the first one is known."""

_RESOURCES = f"struct_pack({', '.join(f'{name} := {name}' for name in USED)})"
_ATTEMPTS = f"""
SELECT
    coalesce(nullif(base_name(task), ''), 'task') AS step,
    task || CASE WHEN attempt > 1 THEN ', attempt ' || attempt ELSE '' END AS name, 'task' AS kind,
    task_id AS id, attempt, state, worker, started_at, ended_at, error_type, error_message,
    left(args::VARCHAR, {ExportLimits.max_argument_characters + 1}) AS arguments, {_RESOURCES} AS used
FROM attempts
ORDER BY coalesce(started_at, submitted_at, ended_at), task_id, attempt
LIMIT {ExportLimits.max_executions + 1}
"""  # noqa: S608 - of our own names alone
_SPANS = f"""
SELECT
    coalesce(nullif(name, ''), 'span') AS step, step AS name, 'span' AS kind, span_id AS id, started_at,
    CASE WHEN open THEN 'running' WHEN status = 'ok' THEN 'completed' ELSE 'failed' END AS state,
    CASE WHEN NOT open THEN TRY(started_at + to_microseconds((duration_s * 1e6)::BIGINT)) END AS ended_at,
    error_type, error_message, struct_pack(duration_s := duration_s) AS used,
    left(tags::VARCHAR, {ExportLimits.max_argument_characters + 1}) AS arguments
FROM spans
WHERE depth = (SELECT min(depth) FROM spans)
ORDER BY started_at, span_id
LIMIT {ExportLimits.max_executions + 1}
"""  # noqa: S608 - of our own names alone


class Execution(Struct, frozen=True, kw_only=True):
    """One execution of a step: a row of `_ATTEMPTS` or `_SPANS`, or the program."""

    step: str
    name: str
    kind: str
    id: str | None
    state: str
    started_at: datetime | str | None
    ended_at: datetime | str | None
    error_type: str | None
    error_message: str | None
    used: dict[str, float | None]
    attempt: int | None = None
    worker: str | None = None
    arguments: str | None = None

    @property
    def identifier(self) -> str:
        """The `@id` of its action."""
        made = f"#{self.kind}-{quote(self.id or '', safe='')}"
        return made if self.attempt is None else f"{made}-{self.attempt}"

    @property
    def error(self) -> str | None:
        """Why it failed; the profile wants that of failed actions alone, and not of what was caught."""
        if STATUSES.get(self.state) != _FAILED:
            return None
        return ": ".join(part for part in (self.error_type, self.error_message) if part) or self.state

    def given(self) -> dict[str, Any]:
        """Its arguments by name; none where they are too long."""
        if self.arguments is None or len(self.arguments) > ExportLimits.max_argument_characters:
            return {}
        found = msgspec.json.decode(self.arguments)
        return found if isinstance(found, dict) else {"args": found}


def executions(run: Run) -> tuple[list[Execution], list[str]]:
    """The executions in order of their start, with notes on what is left out."""
    notes: list[str] = []
    with open_tables([run]) as tables:
        rows = tables.records(_ATTEMPTS)
        of_spans = [] if rows else tables.records(_SPANS)
    too_long = sum(len(row["arguments"] or "") > ExportLimits.max_argument_characters for row in rows)
    if too_long:
        notes.append(f"the arguments of {too_long:,} executions are too long for the graph")
    if of_spans:
        rows = of_spans
        notes.append("no task was recorded: the outermost spans are the steps")
    if len(rows) > ExportLimits.max_executions:
        notes.append(
            f"the graph has the first {ExportLimits.max_executions:,} executions; "
            "the files in run/ have all of them"
        )
    found = [Execution(**row) for row in rows[: ExportLimits.max_executions]]
    return found or [_program(run)], notes


def _program(run: Run) -> Execution:
    ending = run.ending()
    return Execution(
        step="program",
        name="program",
        kind="program",
        id="run",
        state=run.status,
        started_at=run.info.start_time,
        ended_at=ending.end_time,
        error_type=None,
        error_message=run.info.error,
        used={"duration_s": ending.duration_s},
    )


class StepGraph:
    """The entities of the executions, each once, from one pass."""

    def __init__(self, found: list[Execution], artifacts: list[CrateArtifact], agent: Entity | None) -> None:
        self._found, self._agent = found, agent
        self._artifacts: dict[tuple[str | None, bool], list[str]] = {}
        """The `@id`s of a task's inputs, and of its results."""
        for artifact in artifacts:
            key = (artifact.task_id, artifact.is_input)
            self._artifacts.setdefault(key, []).append(artifact.identifier)
        self.tools: dict[str, str] = {}
        """The `@id` of each step's tool, in order of first execution."""
        self._parameters: dict[str, dict[str, str]] = {}
        for one in found:
            tool = self.tools.setdefault(one.step, f"#tool-{len(self.tools) + 1}")
            names = self._parameters.setdefault(one.step, {})
            for name in one.given():
                names.setdefault(name, f"{tool}-input-{len(names) + 1}")
        self.steps = {name: f"#step-{number}" for number, name in enumerate(self.tools, 1)}
        self.controls = [f"{one.identifier}-step" for one in found]

    def __iter__(self) -> Iterator[Entity]:
        for position, (name, tool) in enumerate(self.tools.items(), 1):
            inputs, place = self._parameters[name], str(position)
            yield make_entity(tool, APPLICATION, name=name, input=refs(inputs.values()))
            yield make_entity(self.steps[name], "HowToStep", name=name, position=place, workExample=ref(tool))
            kind = {"additionalType": "PropertyValue", "conformsTo": ref(PARAMETER_PROFILE)}
            for parameter, identifier in inputs.items():
                yield make_entity(identifier, "FormalParameter", name=parameter, **kind)
        values: dict[tuple[str, str, str], str] = {}
        for one, control in zip(self._found, self.controls, strict=True):
            yield from self._action(one, values)
            step, name = ref(self.steps[one.step]), f"Execution of {one.name}"
            action = ref(one.identifier)
            yield make_entity(control, "ControlAction", name=name, instrument=step, object=action)

    def _action(self, one: Execution, values: dict[tuple[str, str, str], str]) -> Iterator[Entity]:
        given: list[str] = []
        for name, value in one.given().items():
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            key = (one.step, name, text)
            if key not in values:
                values[key] = f"#value-{len(values) + 1}"
                example = ref(self._parameters[one.step][name])
                yield {
                    **make_entity(values[key], "PropertyValue", name=name),
                    "value": text,
                    "exampleOfWork": example,
                }
            given.append(values[key])
        used = {name: value for name, value in one.used.items() if value is not None}
        where = "" if one.worker is None else f" on worker {one.worker}"
        task_id = one.id if one.kind == "task" and one.id else ""
        inputs, results = (self._artifacts.get((task_id, is_input), []) for is_input in (True, False))
        yield make_entity(
            one.identifier,
            "CreateAction",
            name=one.name,
            instrument=ref(self.tools[one.step]),
            startTime=moment(one.started_at),
            endTime=moment(one.ended_at),
            actionStatus=STATUSES.get(one.state),
            error=one.error,
            description=f"{one.name}{where}: {one.state}",
            agent=self._agent,
            object=refs([*given, *inputs]),
            result=refs(results),
            resourceUsage=refs(f"{one.identifier}-{name}" for name in used),
        )
        yield from usages(one.identifier, used)


def usages(of: str, used: dict[str, float]) -> Iterator[Entity]:
    """The resource usage of an action, by columns of `attempts` whose suffixes give the units."""
    for name, value in used.items():
        code, unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), (None, None))
        yield make_entity(
            f"{of}-{name}",
            "PropertyValue",
            name=name,
            propertyID=f"urn:flightlog:attempts:{name}",
            value=str(value),
            unitCode=code,
            unitText=unit,
        )


def make_entity(identifier: str, kind: str, /, name: str | None = None, **properties: Any) -> Entity:
    """An entity with those properties that have a value; its name may be empty."""
    named = {} if name is None else {"name": name}
    return {"@id": identifier, "@type": kind, **named, **known(**properties)}


def ref(identifier: str) -> Entity:
    """A reference to an entity."""
    return {"@id": identifier}


def refs(identifiers: Iterable[str]) -> list[Entity]:
    """References to entities, in order."""
    return [ref(one) for one in identifiers]


def known(**properties: Any) -> Entity:
    """The properties that have a value: unknown is left out, and never 0 or an empty text."""
    return {name: value for name, value in properties.items() if value is not None and value not in ("", [])}


def moment(time: datetime | str | None) -> str | None:
    """A time in the profile's form, in milliseconds; the files of the run have microseconds.

    Without a zone it is in UTC. None for an unknown or invalid time.
    """
    found = None if time is None else moment_ns(str(time))
    return None if found is None else f"{timestamp_of(found)[:-4]}+00:00"


def plain(entity: Entity) -> Entity:
    """An entity as written to the file: a list of one is that element."""
    return {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value
        for name, value in entity.items()
    }
