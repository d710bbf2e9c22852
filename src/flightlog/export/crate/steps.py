"""The steps of a crate and their executions: tasks, else outermost spans, else the program; and the RO-Crate
vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from flightlog.store.tables.run_tables import open_tables

if TYPE_CHECKING:
    from flightlog.store.run import Run

MAX_ACTIONS = 5000
"""Executions in the graph of a crate; the files of the run hold all of them."""
MAX_ARGS = 2000
"""Arguments longer than this, as text, are left out of the graph."""

USED = (
    "duration_s",
    "queue_s",
    "cpu_s",
    "gpu_s",
    "peak_rss_bytes",
    "gpu_peak_bytes",
    "read_bytes",
    "write_bytes",
)
"""Columns of `attempts` with the resource usage of an execution; of a span the first one is known."""

_ATTEMPTS = f"""
SELECT
    coalesce(nullif(base_name(task), ''), 'task') AS step,
    task || CASE WHEN attempt > 1 THEN ', attempt ' || attempt ELSE '' END AS name, 'task' AS kind,
    task_id AS id, attempt, state, worker, started_at, ended_at, error_type, error_message,
    left(args::VARCHAR, {MAX_ARGS + 1}) AS arguments, {", ".join(USED)}
FROM attempts
ORDER BY coalesce(started_at, submitted_at, ended_at), task_id, attempt
LIMIT {MAX_ACTIONS + 1}
"""  # noqa: S608 - of our own names alone
_SPANS = f"""
SELECT
    coalesce(nullif(name, ''), 'span') AS step, step, 'span', span_id, NULL,
    CASE WHEN open THEN 'running' WHEN status = 'ok' THEN 'completed' ELSE 'failed' END, NULL, started_at,
    CASE WHEN NOT open THEN TRY(started_at + to_microseconds((duration_s * 1e6)::BIGINT)) END,
    error_type, error_message, left(tags::VARCHAR, {MAX_ARGS + 1}), duration_s
FROM spans
WHERE depth = (SELECT min(depth) FROM spans)
ORDER BY started_at, span_id
LIMIT {MAX_ACTIONS + 1}
"""  # noqa: S608 - of our own names alone


class Execution(Struct, frozen=True, kw_only=True):
    """One execution of a step."""

    step: str
    name: str
    identifier: str
    """The `@id` of its action."""
    state: str
    started: str | None
    ended: str | None
    error: str | None
    arguments: dict[str, Any] | None
    used: dict[str, float]
    task_id: str | None = None
    worker: str | None = None


def executions(run: Run) -> tuple[list[Execution], list[str]]:
    """The executions in order of their start, with notes on what is left out."""
    notes: list[str] = []
    with open_tables([run]) as tables:
        rows = list(tables.rows(_ATTEMPTS))
        of_spans = [] if rows else list(tables.rows(_SPANS))
    too_long = sum(len(row[11] or "") > MAX_ARGS for row in rows)
    if too_long:
        notes.append(f"the arguments of {too_long:,} executions are too long for the graph")
    if of_spans:
        rows = of_spans
        notes.append("no task was recorded: the outermost spans are the steps")
    found = [_execution(*row) for row in rows[:MAX_ACTIONS]] or [_of_program(run)]
    if len(rows) > MAX_ACTIONS:
        notes.append(
            f"the graph has the first {MAX_ACTIONS:,} executions; the files in run/ have all of them"
        )
    return found, notes


def _execution(
    step: str,
    name: str,
    kind: str,
    own_id: str | None,
    attempt: int | None,
    state: str,
    worker: str | None,
    started: datetime | None,
    ended: datetime | None,
    error_type: str | None,
    error_message: str | None,
    arguments: str | None,
    *used: float | None,
) -> Execution:
    """The execution of a row of `_ATTEMPTS` or `_SPANS`."""
    identifier = f"#{kind}-{quote(own_id or '', safe='')}"
    return Execution(
        step=step,
        name=name,
        identifier=identifier if attempt is None else f"{identifier}-{attempt}",
        state=state,
        started=moment(started),
        ended=moment(ended),
        error=_error(state, error_type, error_message),
        arguments=None if arguments is None or len(arguments) > MAX_ARGS else _decoded(arguments),
        used={column: value for column, value in zip(USED, used, strict=False) if value is not None},
        task_id=own_id if kind == "task" else None,
        worker=worker,
    )


def _of_program(run: Run) -> Execution:
    ending = run.ending()
    return Execution(
        step="program",
        name="program",
        identifier="#program-run",
        state=run.status,
        started=moment(run.info.start_time),
        ended=moment(ending.end_time),
        error=run.info.error,
        arguments=None,
        used={} if ending.duration_s is None else {"duration_s": ending.duration_s},
    )


def _error(state: str, kind: str | None, text: str | None) -> str | None:
    if STATUSES.get(state) != STATUSES["failed"]:
        return None  # of a later attempt, or caught: the profile wants an error of failed actions alone
    return ": ".join(part for part in (kind, text) if part) or state


def _decoded(text: str) -> dict[str, Any]:
    found = msgspec.json.decode(text)
    return found if isinstance(found, dict) else {"args": found}


class StepGraph:
    """The entities of the executions, each once, from one pass."""

    def __init__(
        self,
        found: list[Execution],
        inputs: dict[str, list[str]],
        results: dict[str, list[str]],
        agent: Entity | None,
    ) -> None:
        """`inputs` and `results` are the `@id`s of a task's artifacts, by its id."""
        self._found, self._inputs, self._results, self._agent = found, inputs, results, agent
        self.tools: dict[str, str] = {}
        """The `@id` of each step's tool, in order of first execution."""
        for one in found:
            self.tools.setdefault(one.step, f"#tool-{len(self.tools) + 1}")
        self.steps = {name: f"#step-{number}" for number, name in enumerate(self.tools, 1)}
        self.controls = [f"{one.identifier}-step" for one in found]
        self._parameters: dict[str, dict[str, str]] = {name: {} for name in self.tools}
        for one in found:
            names = self._parameters[one.step]
            for name in one.arguments or {}:
                names.setdefault(name, f"{self.tools[one.step]}-input-{len(names) + 1}")

    def __iter__(self) -> Iterator[Entity]:
        for position, (name, tool) in enumerate(self.tools.items(), 1):
            yield {
                "@id": tool,
                "@type": "SoftwareApplication",
                "name": name,
                **known(input=refs(list(self._parameters[name].values()))),
            }
            yield {
                "@id": self.steps[name],
                "@type": "HowToStep",
                "name": name,
                "position": str(position),
                "workExample": ref(tool),
            }
            for parameter, identifier in self._parameters[name].items():
                yield _parameter(identifier, parameter)
        values: dict[tuple[str, str, str], str] = {}
        for one, control in zip(self._found, self.controls, strict=True):
            yield from self._action(one, values)
            yield {
                "@id": control,
                "@type": "ControlAction",
                "name": f"Execution of {one.name}",
                "instrument": ref(self.steps[one.step]),
                "object": ref(one.identifier),
            }

    def _action(self, one: Execution, values: dict[tuple[str, str, str], str]) -> Iterator[Entity]:
        given: list[str] = []
        for name, value in (one.arguments or {}).items():
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            key = (one.step, name, text)
            if key not in values:
                values[key] = f"#value-{len(values) + 1}"
                yield {
                    "@id": values[key],
                    "@type": "PropertyValue",
                    "name": name,
                    "value": text,
                    "exampleOfWork": ref(self._parameters[one.step][name]),
                }
            given.append(values[key])
        used = [f"{one.identifier}-{name}" for name in one.used]
        yield {
            "@id": one.identifier,
            "@type": "CreateAction",
            "name": one.name,
            "instrument": ref(self.tools[one.step]),
            **known(
                startTime=one.started,
                endTime=one.ended,
                actionStatus=STATUSES.get(one.state),
                error=one.error,
                description=_description(one),
                agent=self._agent,
                object=refs([*given, *([] if one.task_id is None else self._inputs.get(one.task_id, []))]),
                result=refs([] if one.task_id is None else self._results.get(one.task_id, [])),
                resourceUsage=refs(used),
            ),
        }
        for name, identifier in zip(one.used, used, strict=True):
            yield usage(identifier, name, one.used[name])


def _description(one: Execution) -> str:
    where = "" if one.worker is None else f" on worker {one.worker}"
    return f"{one.name}{where}: {one.state}"


def usage(identifier: str, name: str, value: float) -> Entity:
    """A resource usage; `name` is a column of `attempts` whose suffix gives the unit."""
    code, unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), (None, None))
    return {
        "@id": identifier,
        "@type": "PropertyValue",
        "name": name,
        "propertyID": f"urn:flightlog:attempts:{name}",
        "value": str(value),
        **known(unitCode=code, unitText=unit),
    }


def _parameter(identifier: str, name: str) -> Entity:
    return {
        "@id": identifier,
        "@type": "FormalParameter",
        "additionalType": "PropertyValue",
        "name": name,
        "conformsTo": ref(PARAMETER_PROFILE),
    }


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

STATUSES = {
    "completed": "http://schema.org/CompletedActionStatus",
    "failed": "http://schema.org/FailedActionStatus",
    "cancelled": "http://schema.org/FailedActionStatus",
    "interrupted": "http://schema.org/FailedActionStatus",
    "crashed": "http://schema.org/FailedActionStatus",
}
"""Action statuses by state. The profile has no status for running and waiting."""


def ref(identifier: str) -> Entity:
    """A reference to an entity."""
    return {"@id": identifier}


def refs(identifiers: list[str]) -> list[Entity]:
    """References to entities, in order."""
    return [ref(one) for one in identifiers]


def known(**properties: Any) -> Entity:
    """The properties that have a value: unknown is left out, and never 0 or an empty text."""
    return {name: value for name, value in properties.items() if value is not None and value not in ("", [])}


def moment(time: datetime | str | None) -> str | None:
    """A time in the profile's form, in milliseconds; the files of the run have microseconds.

    Without a zone it is in UTC. None for an unknown or invalid time.
    """
    if not time:
        return None
    try:
        known = datetime.fromisoformat(time) if isinstance(time, str) else time
        known = known.replace(tzinfo=UTC) if known.tzinfo is None else known.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return known.isoformat(timespec="milliseconds")


def plain(entity: Entity) -> Entity:
    """An entity as written to the file: a list of one is that element."""
    return {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value
        for name, value in entity.items()
    }


def descriptor() -> Entity:
    """The entity that declares the folder a crate."""
    return {
        "@id": METADATA,
        "@type": "CreativeWork",
        "conformsTo": refs([CRATE, WORKFLOW_CRATE]),
        "about": ref(ROOT),
    }


def profiles() -> list[Entity]:
    """The profiles that the crate follows."""
    return [
        {"@id": address, "@type": "CreativeWork", "name": name, "version": address.rpartition("/")[2]}
        for address, name in PROFILES.items()
    ]
