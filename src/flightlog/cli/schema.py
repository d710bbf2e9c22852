"""Prints the JSON Schema of what Flightlog writes.

    flightlog schema tasks        # a line of tasks.jsonl
    flightlog schema              # a line of any stream
    flightlog schema report       # the report's JSON; summary.json has some of its fields
    flightlog schema compare      # the JSON of flightlog compare
    flightlog schema trends       # the JSON of flightlog trends
    flightlog schema advice       # the JSON of flightlog advise
    flightlog schema diagnosis    # the JSON of flightlog diagnose
    flightlog schema device-report    # the JSON of flightlog devices; devices is the stream
    flightlog schema manifest     # flightlog.yaml, for editors

The schemas are generated from the declarations of the events, in the dialect 2020-12. Fields beyond
the declared ones are valid: newer versions may add some. In a manifest an unknown key is an
error.
"""

from __future__ import annotations

from importlib import import_module

import typer

from flightlog.cli.output import json_text, put
from flightlog.core.errors import UsageError
from flightlog.core.plugins import did_you_mean

DOCUMENTS = {
    "report": "flightlog.analyze.report.report:report_schema",
    "compare": "flightlog.analyze.compare.compare:comparison_schema",
    "trends": "flightlog.analyze.history.trends:trend_schema",
    "advice": "flightlog.analyze.advice.advise:advice_schema",
    "diagnosis": "flightlog.analyze.diagnosis.diagnose:diagnosis_schema",
    "device-report": "flightlog.analyze.devices.report:devices_schema",
    "manifest": "flightlog.session.schema:manifest_schema",
}
"""What has a schema beside the streams, and the function that gives it."""


def complete_stream(incomplete: str) -> list[str]:
    """Names that the command takes, for the shell."""
    from flightlog.events import streams

    return [name for name in (*DOCUMENTS, *streams()) if name.startswith(incomplete)]


def schema(
    stream: str | None = typer.Argument(
        None,
        metavar="STREAM",
        help="Stream such as tasks, or report, compare, trends, advice, diagnosis, device-report or "
        "manifest."
        " Default: any stream",
        autocompletion=complete_stream,
        show_default=False,
    ),
) -> None:
    """Print the JSON Schema of a stream, result or manifest.

    Example: flightlog schema tasks
    """
    from flightlog.events import streams
    from flightlog.events.schema import json_schema

    if stream is not None and stream not in {*DOCUMENTS, *streams()}:
        names = [*streams(), *DOCUMENTS]
        hint = did_you_mean(stream, names)
        raise UsageError(f"there is no schema {stream!r}.{hint} The schemas are {', '.join(names)}.")
    module, _, function = DOCUMENTS.get(stream or "", "").partition(":")
    put(json_text(getattr(import_module(module), function)() if module else json_schema(stream)))
