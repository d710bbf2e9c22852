"""The words of RO-Crate: its profiles, the terms beside schema.org's, and the entities that are the same in
each crate.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Entity = dict[str, Any]
"""One node of the graph, as it is written."""

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
"""How things ended. What runs, or waits, has no status in the profile."""


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
    """A time as the profile wants it, to the millisecond; the files of the run have the microseconds.

    Without a zone it is in UTC. None for what is unknown, or is no time.
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
    """An entity as it is written: a list of one is the one."""
    return {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value
        for name, value in entity.items()
    }


def descriptor() -> Entity:
    """What says that the folder is a crate."""
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
