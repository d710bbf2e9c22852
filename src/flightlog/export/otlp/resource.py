"""Who sends, as OpenTelemetry asks for it: a service, an instance of it, a host and a process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from urllib.parse import unquote

from flightlog.export.otlp.model import Attributes, Resource
from flightlog.store.layout import RunInfo
from flightlog.version import __version__


def resource_of(info: RunInfo, environ: Mapping[str, str]) -> Resource:
    """The run as a resource: its project is the service, the run an instance of it.

    `OTEL_RESOURCE_ATTRIBUTES` adds to this or says otherwise, and `OTEL_SERVICE_NAME` names the service. What
    is not known is left out.
    """
    known: Attributes = {
        "service.name": info.project or "flightlog",
        "service.instance.id": info.run_id,
        "host.name": info.host or None,
        "process.pid": info.pid or None,
        "process.command_args": info.command or None,
        "process.working_directory": info.cwd,
        "process.runtime.name": "python" if info.python else None,
        "process.runtime.version": info.python,
        "vcs.ref.head.revision": info.git_commit,
        "telemetry.sdk.name": "flightlog",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": info.flightlog_version or __version__,
    }
    said = pairs_of(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    if name := environ.get("OTEL_SERVICE_NAME"):
        said["service.name"] = name
    return Resource(attributes={key: value for key, value in {**known, **said}.items() if value is not None})


def pairs_of(text: str) -> dict[str, str]:
    """`key=value,key=value` with `%20` for what may not stand there; what is no pair is left out."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if equals and key.strip():
            found[unquote(key.strip())] = unquote(value.strip().strip('"'))
    return found


class Ids:
    """The run's trace and span ids; made from its name where it was recorded without, and always the same
    then.
    """

    def __init__(self, info: RunInfo) -> None:
        self.trace_id = hex_id(info.trace_id, 32) or made_id(32, info.run_id)
        self.root_id = hex_id(info.span_id, 16) or made_id(16, info.run_id, "run")
        self.above_id = hex_id(info.parent_id, 16)
        """The span of another program that the run happened in, if there is one."""
        self._run_id = info.run_id

    def trace(self, recorded: str | None) -> str:
        """A trace id as it was recorded, or the run's."""
        return hex_id(recorded, 32) or self.trace_id

    def span(self, recorded: str | None, *which: object) -> str:
        """A span id as it was recorded, or one made from what the span is."""
        return hex_id(recorded, 16) or made_id(16, self._run_id, *which)

    def parent(self, recorded: str | None, trace_id: str) -> str | None:
        """The parent as it was recorded; else the run itself, within its trace."""
        return hex_id(recorded, 16) or (self.root_id if trace_id == self.trace_id else None)


def hex_id(text: str | None, digits: int) -> str | None:
    """An id in lowercase hex; None where it is none, or nothing but zeros."""
    if not text or len(text) != digits:
        return None
    lower = text.lower()
    return lower if lower.strip("0") and not lower.strip("0123456789abcdef") else None


def made_id(digits: int, *parts: object) -> str:
    """An id that is the same for the same parts, always."""
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "replace")).hexdigest()[:digits]
