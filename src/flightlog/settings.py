"""The one place that reads Flightlog's environment variables.

A bad value is a message in `Settings.problems` and the default instead: it never stops the user's program.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

DEFAULT_RUNS_DIR = Path(".flightlog/runs")

DOCUMENTED: dict[str, str] = {
    "FLIGHTLOG_RUNS_DIR": "Folder that holds the run directories; `.flightlog/runs` if unset.",
    "FLIGHTLOG_TELEMETRY": "Whether to record at all: 0, 1, true, false, on or off; on if unset.",
    "FLIGHTLOG_TELEMETRY_PARQUET": "Whether a closed run gets Parquet copies of its streams; off if unset.",
    "FLIGHTLOG_RUNS_DIR_REMOTE": "Address for copies of runs, such as `s3://bucket/runs`; read, and not used yet.",
    "FLIGHTLOG_CACHE_DIR": "Folder of kept results; the manifest's `local_cache`, or else `.flightlog/cache`, if unset.",
    "FLIGHTLOG_TARGET": "Target of the manifest to run on, where no argument names one.",
    "FLIGHTLOG_OVERLAY": "Overlay that is laid over the manifest last: one of its own by name, or a file.",
    "FLIGHTLOG_PRICES": "File of a price table, in place of the manifest's and of the one that ships.",
    "FLIGHTLOG_DEVICE_MEMORY": "Whether processes that record track their framework's device memory: 1, torch, jax, "
    "tensorflow, or 0; off if unset.",
    "FLIGHTLOG_DEVICE_MEMORY_INTERVAL": "Seconds between two samples of device memory; 0.1 if unset.",
    "FLIGHTLOG_RUN": "Absolute path of the run directory a child process joins; set by Flightlog itself.",
    "TRACEPARENT": "W3C trace context of the span that started this process; set by Flightlog and other tracers.",
}
"""Every variable that is read, with its meaning in a line."""

_ON = frozenset({"1", "true", "on", "yes"})
_OFF = frozenset({"0", "false", "off", "no"})
_TRACEPARENT = r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?"


class Settings(Struct, frozen=True, kw_only=True):
    """What the environment asks for."""

    runs_dir: Path = DEFAULT_RUNS_DIR
    """As given, `~` expanded; a relative path counts from the working directory of whoever uses it."""
    enabled: bool = True
    parquet: bool = False
    remote: str | None = None
    cache_dir: Path | None = None
    """As `runs_dir`; None where nothing is said."""
    target: str | None = None
    """The target of a manifest, blanks around it taken off; whether there is one of that name shows later."""
    overlay: str | None = None
    """The name or the file of an overlay, blanks around it taken off; whether there is one shows later."""
    prices: Path | None = None
    """As `runs_dir`; the price table, None where nothing is said."""
    device_memory: str | None = None
    """The framework whose device memory is tracked, `auto` for whichever is imported; None for no tracking."""
    device_memory_interval_s: float = 0.1
    run: str | None = None
    """The run directory that this process joins."""
    traceparent: str | None = None
    """`version-trace-span-flags`, valid; what a future version adds after the flags is left out."""
    problems: tuple[str, ...] = ()
    """One message for each value that was not understood, saying what holds instead."""


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings in these variables. Never raises; an empty variable counts as unset."""
    problems: list[str] = []
    return Settings(
        runs_dir=_folder(environ, "FLIGHTLOG_RUNS_DIR", f"runs go to {DEFAULT_RUNS_DIR}", problems)
        or DEFAULT_RUNS_DIR,
        enabled=_switch(environ, "FLIGHTLOG_TELEMETRY", True, "recording stays on", problems),
        parquet=_switch(
            environ, "FLIGHTLOG_TELEMETRY_PARQUET", False, "no Parquet copies are made", problems
        ),
        remote=_text(environ, "FLIGHTLOG_RUNS_DIR_REMOTE"),
        cache_dir=_folder(environ, "FLIGHTLOG_CACHE_DIR", "it counts as unset", problems),
        target=(_text(environ, "FLIGHTLOG_TARGET") or "").strip() or None,
        overlay=(_text(environ, "FLIGHTLOG_OVERLAY") or "").strip() or None,
        prices=_folder(environ, "FLIGHTLOG_PRICES", "it counts as unset", problems),
        device_memory=_framework(environ, problems),
        device_memory_interval_s=_seconds(environ, "FLIGHTLOG_DEVICE_MEMORY_INTERVAL", 0.1, problems),
        run=_run(environ, problems),
        traceparent=_traceparent(environ, problems),
        problems=tuple(problems),
    )


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """`Settings.cache_dir` alone, at little cost: it is asked for at every lookup."""
    return _folder(environ, "FLIGHTLOG_CACHE_DIR", "", []) if environ.get("FLIGHTLOG_CACHE_DIR") else None


def asks_for_device_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether `Settings.device_memory` says anything, at little cost: it is asked for at every joining."""
    return bool(environ.get("FLIGHTLOG_DEVICE_MEMORY"))


def _text(environ: Mapping[str, str], name: str) -> str | None:
    value = environ.get(name)
    return value if value and not value.isspace() else None


def _shown(value: str) -> str:
    return repr(value if len(value) <= 80 else value[:80] + "…")


def _switch(environ: Mapping[str, str], name: str, default: bool, kept: str, problems: list[str]) -> bool:
    value = _text(environ, name)
    if value is None:
        return default
    word = value.strip().lower()
    if word in _ON or word in _OFF:
        return word in _ON
    problems.append(
        f"{name}={_shown(value)} is neither on nor off (use 0, 1, true, false, on or off); {kept}"
    )
    return default


def _folder(environ: Mapping[str, str], name: str, kept: str, problems: list[str]) -> Path | None:
    value = _text(environ, name)
    if value is None:
        return None
    if "\0" in value:
        problems.append(f"{name}={_shown(value)} holds a NUL, which no path may; {kept}")
        return None
    try:
        return Path(value).expanduser()
    except RuntimeError:  # `~name` of a user that does not exist
        problems.append(f"{name}={_shown(value)} names a home folder that does not exist; {kept}")
        return None


def _framework(environ: Mapping[str, str], problems: list[str]) -> str | None:
    value = _text(environ, "FLIGHTLOG_DEVICE_MEMORY")
    word = "" if value is None else value.strip().lower()
    if value is None or word in _OFF:
        return None
    if word in _ON or word == "auto":
        return "auto"
    if word.partition(".")[0] in {"torch", "jax", "tensorflow"}:
        return word
    problems.append(
        f"FLIGHTLOG_DEVICE_MEMORY={_shown(value)} is no framework (use torch, jax, tensorflow, 1 or 0); "
        "no device memory is tracked"
    )
    return None


def _seconds(environ: Mapping[str, str], name: str, default: float, problems: list[str]) -> float:
    value = _text(environ, name)
    if value is None:
        return default
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if 0 < seconds < 1e6:
        return seconds
    problems.append(f"{name}={_shown(value)} is no positive number of seconds; it is {default:g}")
    return default


def _run(environ: Mapping[str, str], problems: list[str]) -> str | None:
    value = _text(environ, "FLIGHTLOG_RUN")
    if value is None or (value.startswith(os.sep) and "\0" not in value):
        return value
    problems.append(
        f"FLIGHTLOG_RUN={_shown(value)} is not the absolute path of a run directory; no run is joined"
    )
    return None


def parse_traceparent(text: str | None) -> tuple[str, str] | None:
    """Trace id and span id of a W3C trace context; None for anything else."""
    found = re.fullmatch(_TRACEPARENT, text.strip()) if isinstance(text, str) else None
    if found is None:
        return None
    version, trace, span, more = found.groups()
    known = version != "ff" and not (version == "00" and more)
    return (trace, span) if known and trace.strip("0") and span.strip("0") else None


def _traceparent(environ: Mapping[str, str], problems: list[str]) -> str | None:
    value = _text(environ, "TRACEPARENT")
    if value is None:
        return None
    if parse_traceparent(value) is not None:
        return value.strip()[:55]
    problems.append(
        f"TRACEPARENT={_shown(value)} is not a W3C trace context (00-<32 hex>-<16 hex>-<2 hex>); "
        "this process starts a trace of its own"
    )
    return None
