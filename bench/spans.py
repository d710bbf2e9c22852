"""A durable span against the OpenTelemetry SDK, a disabled span against a reused `nullcontext`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import flightlog
from bench.timing import interleaved

SPANS = 20_000
PEER_SPANS = 2_000
ROUNDS = 9


def ours() -> float:
    """Nanoseconds a span: two tags and one metric, durable after kill -9."""
    span = flightlog.span
    start = perf_counter_ns()
    for i in range(SPANS):
        with span("simulation.execute", seed=i, param="abc") as current:
            current.metrics["loss"] = 0.3
    return (perf_counter_ns() - start) / SPANS


def reused_nullcontext() -> float:
    """Nanoseconds of the floor: a context manager that exists already and does nothing."""
    nothing = contextlib.nullcontext()
    start = perf_counter_ns()
    for _ in range(SPANS):
        with nothing:
            pass
    return (perf_counter_ns() - start) / SPANS


def without_metric() -> float:
    """Nanoseconds a span when recording is off."""
    span = flightlog.span
    start = perf_counter_ns()
    for i in range(SPANS):
        with span("simulation.execute", seed=i, param="abc"):
            pass
    return (perf_counter_ns() - start) / SPANS


def peer(folder: Path, processor: str, exporter: str) -> Callable[[], float]:
    """Nanoseconds a span of the OpenTelemetry SDK, the same tags and metric as attributes, to a JSONL
    file."""
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider, export

    class Lean(export.SpanExporter):
        """The leanest line that holds what ours holds."""

        def __init__(self, out: Any) -> None:
            self.out = out

        def export(self, spans: Sequence[ReadableSpan]) -> export.SpanExportResult:
            for span in spans:
                context = span.get_span_context()
                assert context is not None
                line = {
                    "name": span.name,
                    "trace_id": format(context.trace_id, "032x"),
                    "span_id": format(context.span_id, "016x"),
                    "start": span.start_time,
                    "end": span.end_time,
                    "attributes": dict(span.attributes or {}),
                }
                self.out.write(json.dumps(line) + "\n")
            self.out.flush()
            return export.SpanExportResult.SUCCESS

    out = (folder / f"peer-{processor}-{exporter}.jsonl").open("w")
    made: Any = (
        Lean(out)
        if exporter == "lean"
        else export.ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\n")
    )
    provider = TracerProvider()
    provider.add_span_processor(getattr(export, f"{processor}SpanProcessor")(made))
    tracer = provider.get_tracer("bench")

    def measure() -> float:
        start = perf_counter_ns()
        for i in range(PEER_SPANS):
            with tracer.start_as_current_span(
                "simulation.execute", attributes={"seed": i, "param": "abc"}
            ) as span:
                span.set_attribute("loss", 0.3)
        provider.force_flush()
        return (perf_counter_ns() - start) / PEER_SPANS

    return measure


def durable() -> dict[str, float]:
    """Nanoseconds a span: ours, and the peer's as it comes and as lean as can be."""
    with tempfile.TemporaryDirectory() as folder:
        cases = {
            "own": peer(Path(folder), "Simple", "own"),
            "lean": peer(Path(folder), "Simple", "lean"),
            "ours": ours,
        }
        with flightlog.record("bench", runs_dir=folder):
            return interleaved(cases, ROUNDS)


def disabled() -> dict[str, float]:
    """Nanoseconds a span when recording is switched off, when no run is active, and of the floor."""
    if os.environ.get("FLIGHTLOG_TELEMETRY") == "0":
        return interleaved({"nullcontext": reused_nullcontext, "off": without_metric}, 3 * ROUNDS)
    idle = interleaved({"nullcontext": reused_nullcontext, "idle": without_metric}, 3 * ROUNDS)
    code = "import json, bench.spans; print(json.dumps(bench.spans.disabled()))"
    off = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "FLIGHTLOG_TELEMETRY": "0"},
        check=True,
        capture_output=True,
    )
    return {**json.loads(off.stdout), "idle": idle["idle"], "nullcontext beside idle": idle["nullcontext"]}
