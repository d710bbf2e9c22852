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

The schemas are made from the declarations that the recorder writes by, in the dialect 2020-12. Fields beyond
the declared ones are valid: newer versions may add some. Not so in a manifest, where an unknown key is a
mistake.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flightlog.cli.output import json_text, put
from flightlog.core.errors import UsageError

REPORT = "report"
COMPARE = "compare"
TRENDS = "trends"
ADVICE = "advice"
DIAGNOSIS = "diagnosis"
DEVICE_REPORT = "device-report"
MANIFEST = "manifest"
DOCUMENTS = (REPORT, COMPARE, TRENDS, ADVICE, DIAGNOSIS, DEVICE_REPORT, MANIFEST)
"""What has a schema beside the streams."""


def complete_stream(incomplete: str) -> list[str]:
    """Names that the command takes, for the shell."""
    from flightlog.events import streams

    return [name for name in (*DOCUMENTS, *streams()) if name.startswith(incomplete)]


def schema(
    stream: Annotated[
        str | None,
        typer.Argument(
            metavar="STREAM",
            help="Stream such as tasks, or report, compare, trends, advice, diagnosis, device-report or "
            "manifest."
            " Default: any stream",
            autocompletion=complete_stream,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of a stream, result or manifest.

    Example: flightlog schema tasks
    """
    from flightlog.events import streams
    from flightlog.events.schema import json_schema

    if stream is not None and stream not in {*DOCUMENTS, *streams()}:
        raise UsageError(_unknown(stream, [*streams(), *DOCUMENTS]))
    found = _of_document(stream) if stream in DOCUMENTS else json_schema(stream)
    put(json_text(found))


def _of_document(name: str | None) -> dict[str, Any]:
    if name == MANIFEST:
        from flightlog.session.schema import manifest_schema

        return manifest_schema()
    if name == COMPARE:
        from flightlog.analyze.compare.compare import comparison_schema

        return comparison_schema()
    if name == TRENDS:
        from flightlog.analyze.history.trends import trend_schema

        return trend_schema()
    if name == ADVICE:
        from flightlog.analyze.advice.advise import advice_schema

        return advice_schema()
    if name == DIAGNOSIS:
        from flightlog.analyze.diagnosis.diagnose import diagnosis_schema

        return diagnosis_schema()
    if name == DEVICE_REPORT:
        from flightlog.analyze.devices.report import devices_schema

        return devices_schema()
    from flightlog.analyze.report.report import report_schema

    return report_schema()


def _unknown(name: str, names: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"there is no schema {name!r}.{hint} The schemas are {', '.join(names)}."
