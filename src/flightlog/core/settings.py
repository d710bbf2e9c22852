"""The one place that reads Flightlog's environment variables.

A bad value is a message in `Settings.problems` and the default instead: it never stops the user's program.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar, cast

from msgspec import Struct

T = TypeVar("T")

DEFAULT_RUNS_DIR = Path(".flightlog/runs")

DOCUMENTED: dict[str, str] = {
    "FLIGHTLOG_RUNS_DIR": (
        "Folder that holds the run directories; `.flightlog/runs` if unset. An address such as "
        "`s3://bucket/runs` is read from, and not recorded to."
    ),
    "FLIGHTLOG_TELEMETRY": "Whether to record at all: 0, 1, true, false, on or off; on if unset.",
    "FLIGHTLOG_TELEMETRY_PARQUET": "Whether a closed run gets Parquet copies of its streams; off if unset.",
    "FLIGHTLOG_RUNS_DIR_REMOTE": (
        "Address for copies of runs, such as `s3://bucket/runs`: each run is copied there while it runs, "
        "by `flightlog sync --follow` beside it."
    ),
    "FLIGHTLOG_REMOTE_CACHE": "Folder of local copies of remote runs; `~/.cache/flightlog/remote` if unset.",
    "FLIGHTLOG_REMOTE_CACHE_MAX": "Most that these copies may take, such as `2GB`; 10GiB if unset.",
    "FLIGHTLOG_CACHE_DIR": (
        "Folder of kept results; the manifest's `local_cache`, or else `.flightlog/cache`, if unset."
    ),
    "FLIGHTLOG_TARGET": "Target of the manifest to run on, where no argument names one.",
    "FLIGHTLOG_OVERLAY": "Overlay that is laid over the manifest last: one of its own by name, or a file.",
    "FLIGHTLOG_PRICES": "File of a price table, in place of the manifest's and of the one that ships.",
    "FLIGHTLOG_DEVICE_MEMORY": (
        "Whether processes that record track their framework's device memory: 1, torch, jax, tensorflow, "
        "or 0; off if unset."
    ),
    "FLIGHTLOG_DEVICE_MEMORY_INTERVAL": "Seconds between two samples of device memory; 0.1 if unset.",
    "FLIGHTLOG_REDACT": (
        "Regular expressions of secrets of your own, one per line, which are redacted beside the known "
        "kinds; with a group, its text alone. `@FILE` names a file that holds them."
    ),
    "FLIGHTLOG_MANIFEST_AS_WRITTEN": (
        "Whether a run keeps its manifest exactly as written, secrets included; off if unset."
    ),
    "FLIGHTLOG_RUN": "Absolute path of the run directory a child process joins; set by Flightlog itself.",
    "FLIGHTLOG_COMPLETE": (
        "Who completes a run that has ended (segments folded, `summary.json`, `checksums.json`): auto, "
        "now for its own end, however long that takes, or later for whoever reads it first; auto if "
        "unset."
    ),
    "FLIGHTLOG_FOLLOWERS_WAIT": (
        "Seconds that the end of a run waits for what it still has to send; 5 if unset."
    ),
    "FLIGHTLOG_ALERTS": (
        'Alerts of every run, as a JSON list of entries such as `{"when": ["failed"], "notify": ["…"]}`, or '
        "`@FILE`; sent by `flightlog alert` beside the run."
    ),
    "OTEL_EXPORTER_OTLP_ENDPOINT": (
        "Where OpenTelemetry's data goes; each run is sent there while it runs, by `flightlog export --to"
        " otlp --follow` beside it, which reads the other `OTEL_*` variables, too."
    ),
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "As OTEL_EXPORTER_OTLP_ENDPOINT, for traces alone.",
    "OTEL_SDK_DISABLED": "true: nothing is sent to where OpenTelemetry's data goes.",
    "OTEL_TRACES_EXPORTER": "none: no traces are sent.",
    "OTEL_METRICS_EXPORTER": "none: no metrics are sent.",
    "OTEL_LOGS_EXPORTER": "none: no logs are sent.",
    "TRACEPARENT": (
        "W3C trace context of the span that started this process; set by Flightlog and other tracers."
    ),
}
"""Every variable that is read, with its meaning in a line."""

_ON = frozenset({"1", "true", "on", "yes"})
_OFF = frozenset({"0", "false", "off", "no"})
_TRACEPARENT = r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?"


class Settings(Struct, frozen=True, kw_only=True):
    """What the environment asks for."""

    runs_dir: Path = DEFAULT_RUNS_DIR
    """As given, `~` expanded; a relative path counts from the working directory of whoever uses it."""
    runs_address: str | None = None
    """The address that runs are read from, where that is what FLIGHTLOG_RUNS_DIR names; `runs_dir` is the
    default then."""
    enabled: bool = True
    parquet: bool = False
    remote: str | None = None
    remote_cache: Path | None = None
    """As `runs_dir`; None where nothing is said."""
    remote_cache_max_bytes: int = 10 << 30
    cache_dir: Path | None = None
    """As `runs_dir`; None where nothing is said."""
    target: str | None = None
    """The target of a manifest, blanks around it taken off; whether there is one of that name shows later."""
    overlay: str | None = None
    """The name or the file of an overlay, blanks around it taken off; whether there is one shows later."""
    prices: Path | None = None
    """As `runs_dir`; the price table, None where nothing is said."""
    device_memory: str | None = None
    """The framework whose device memory is tracked, `auto` for whichever is imported; None for no
    tracking."""
    device_memory_interval_s: float = 0.1
    complete: str = "auto"
    """Who brings a run that has ended into its final form: `auto`, `now` for its own end, `later` for its
    first reader."""
    followers_wait_s: float = 5.0
    """How long the end of a run waits for its followers; 0 for not at all."""
    alerts: bool = False
    """Whether alerts are asked for; what they are, the process beside the run reads."""
    otlp: bool = False
    """Whether runs are sent to an OpenTelemetry endpoint that the environment names, while they run."""
    manifest_as_written: bool = False
    """Whether a run keeps the manifest with the secrets that are written out in it."""
    run: str | None = None
    """The run directory that this process joins."""
    traceparent: str | None = None
    """`version-trace-span-flags`, valid; what a future version adds after the flags is left out."""
    problems: tuple[str, ...] = ()
    """One message for each value that was not understood, saying what holds instead."""


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings in these variables. Never raises; an empty variable counts as unset."""
    read = _Reader(os.environ if environ is None else environ)
    read.patterns()
    return Settings(
        runs_dir=read.runs_dir(),
        runs_address=runs_address(read.environ),
        enabled=read.switch("FLIGHTLOG_TELEMETRY", True, "recording stays on"),
        parquet=read.switch("FLIGHTLOG_TELEMETRY_PARQUET", False, "no Parquet copies are made"),
        remote=read.text("FLIGHTLOG_RUNS_DIR_REMOTE"),
        remote_cache=read.folder("FLIGHTLOG_REMOTE_CACHE"),
        remote_cache_max_bytes=read.size("FLIGHTLOG_REMOTE_CACHE_MAX", 10 << 30),
        cache_dir=read.folder("FLIGHTLOG_CACHE_DIR"),
        target=(read.text("FLIGHTLOG_TARGET") or "").strip() or None,
        overlay=(read.text("FLIGHTLOG_OVERLAY") or "").strip() or None,
        prices=read.folder("FLIGHTLOG_PRICES"),
        device_memory=read.framework(),
        device_memory_interval_s=read.seconds("FLIGHTLOG_DEVICE_MEMORY_INTERVAL", 0.1),
        complete=read.complete(),
        followers_wait_s=read.seconds("FLIGHTLOG_FOLLOWERS_WAIT", 5.0, least=0.0),
        alerts=read.text("FLIGHTLOG_ALERTS") is not None,
        otlp=read.otlp(),
        manifest_as_written=read.switch(
            "FLIGHTLOG_MANIFEST_AS_WRITTEN", False, "secrets in a manifest are redacted"
        ),
        run=read.run(),
        traceparent=read.traceparent(),
        problems=tuple(read.problems),
    )


def runs_address(environ: Mapping[str, str] | None = None) -> str | None:
    """`Settings.runs_address` alone."""
    value = _Reader(os.environ if environ is None else environ).text("FLIGHTLOG_RUNS_DIR")
    return value.strip() if value is not None and "://" in value else None


def cache_folder(environ: Mapping[str, str] | None = None) -> Path | None:
    """`Settings.cache_dir` alone, at little cost: it is asked for at every lookup."""
    environ = os.environ if environ is None else environ
    return _Reader(environ).folder("FLIGHTLOG_CACHE_DIR") if environ.get("FLIGHTLOG_CACHE_DIR") else None


def asks_for_device_memory() -> bool:
    """Whether `Settings.device_memory` says anything, at little cost: it is asked for at every joining."""
    return bool(os.environ.get("FLIGHTLOG_DEVICE_MEMORY"))


def redact_patterns(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The patterns of `FLIGHTLOG_REDACT` that can be used, at little cost where there are none."""
    environ = os.environ if environ is None else environ
    return _Reader(environ).patterns() if environ.get("FLIGHTLOG_REDACT") else ()


def expanded(path: str | os.PathLike[str]) -> Path:
    """A path with `~` and `~name` as the folders they stand for; as it is where they stand for none."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - that of `Path` raises there


def parse_traceparent(text: str | None) -> tuple[str, str] | None:
    """Trace id and span id of a W3C trace context; None for anything else."""
    found = (
        None if not issubclass(type(text), str) else re.fullmatch(_TRACEPARENT, str.strip(cast(str, text)))
    )
    if found is None:
        return None
    version, trace, span, more = found.groups()
    known = version != "ff" and not (version == "00" and more)
    return (trace, span) if known and trace.strip("0") and span.strip("0") else None


def user_cache(environ: Mapping[str, str]) -> Path:
    """The folder of Flightlog's own caches of this user. Never raises."""
    cache = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME') or '~'}/.cache"
    return expanded(cache) / "flightlog"


class _Reader:
    """Reads variables one by one, and notes in `problems` what holds in place of a bad value."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.problems: list[str] = []

    def text(self, name: str) -> str | None:
        value = self.environ.get(name)
        return value if value and not value.isspace() else None

    def word(self, name: str) -> str:
        """In lower case, without blanks around it; empty where it is unset."""
        return (self.text(name) or "").strip().lower()

    def refused(self, name: str, why: str, instead: T) -> T:
        """Note why a value is not used; gives what holds instead."""
        value = self.environ[name]
        self.problems.append(f"{name}={value if len(value) <= 80 else value[:80] + '…'!r} {why}")
        return instead

    def switch(self, name: str, default: bool, kept: str) -> bool:
        word = self.word(name)
        if not word or word in _ON or word in _OFF:
            return word in _ON if word else default
        why = f"is neither on nor off (use 0, 1, true, false, on or off); {kept}"
        return self.refused(name, why, default)

    def folder(self, name: str, kept: str = "it counts as unset") -> Path | None:
        value = self.text(name)
        if value is None:
            return None
        if "\0" in value:
            return self.refused(name, f"holds a NUL, which no path may; {kept}", None)
        try:
            return Path(value).expanduser()
        except RuntimeError:  # `~name` of a user that does not exist
            return self.refused(name, f"names a home folder that does not exist; {kept}", None)

    def runs_dir(self) -> Path:
        if runs_address(self.environ) is None:
            return self.folder("FLIGHTLOG_RUNS_DIR", f"runs go to {DEFAULT_RUNS_DIR}") or DEFAULT_RUNS_DIR
        self.problems.append(  # without the value, which may hold a password
            "FLIGHTLOG_RUNS_DIR is an address: runs are read from it, and not recorded to it; they go to "
            f"{DEFAULT_RUNS_DIR}, and FLIGHTLOG_RUNS_DIR_REMOTE has them copied to an address"
        )
        return DEFAULT_RUNS_DIR

    def size(self, name: str, default: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        from flightlog.core.errors import UsageError
        from flightlog.core.units import format_bytes, parse_size

        try:
            return parse_size(value)
        except UsageError:
            why = f"is no size (use for example 2GB); it is {format_bytes(default)}"
            return self.refused(name, why, default)

    def seconds(self, name: str, default: float, *, least: float | None = None) -> float:
        """A time that is positive, or not below `least` where that is given."""
        value = self.text(name)
        if value is None:
            return default
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if (seconds > 0 if least is None else seconds >= least) and seconds < 1e6:
            return seconds
        return self.refused(name, f"is no positive number of seconds; it is {default:g}", default)

    def framework(self) -> str | None:
        word = self.word("FLIGHTLOG_DEVICE_MEMORY")
        if not word or word in _OFF:
            return None
        if word in _ON or word == "auto":
            return "auto"
        if word.partition(".")[0] in {"torch", "jax", "tensorflow"}:
            return word
        why = "is no framework (use torch, jax, tensorflow, 1 or 0); no device memory is tracked"
        return self.refused("FLIGHTLOG_DEVICE_MEMORY", why, None)

    def complete(self) -> str:
        word = self.word("FLIGHTLOG_COMPLETE") or "auto"
        if word in {"auto", "now", "later"}:
            return word
        return self.refused("FLIGHTLOG_COMPLETE", "is none of auto, now and later; it is auto", "auto")

    def otlp(self) -> bool:
        """Whether the standard variables name an endpoint, and leave anything to be sent."""
        endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        kinds = ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER")
        none = all(self.word(kind) == "none" for kind in kinds)
        return any(map(self.text, endpoints)) and self.word("OTEL_SDK_DISABLED") != "true" and not none

    def run(self) -> str | None:
        value = self.text("FLIGHTLOG_RUN")
        if value is None or (value.startswith(os.sep) and "\0" not in value):
            return value
        why = "is not the absolute path of a run directory; no run is joined"
        return self.refused("FLIGHTLOG_RUN", why, None)

    def traceparent(self) -> str | None:
        value = self.text("TRACEPARENT")
        if value is None or parse_traceparent(value) is not None:
            return value and value.strip()[:55]
        why = "is not a W3C trace context (00-<32 hex>-<16 hex>-<2 hex>)"
        return self.refused("TRACEPARENT", f"{why}; this process starts a trace of its own", None)

    def patterns(self) -> tuple[str, ...]:
        """The regular expressions of `FLIGHTLOG_REDACT` that can be used."""
        value = self.text("FLIGHTLOG_REDACT")
        if value is None:
            return ()
        if value.startswith("@"):
            try:
                value = Path(value[1:].strip()).expanduser().read_text("utf-8")[:100_000]
            except (OSError, ValueError, RuntimeError) as error:
                why = getattr(error, "strerror", None) or type(error).__name__
                self.problems.append(
                    f"FLIGHTLOG_REDACT names a file that cannot be read ({why}); it counts as unset"
                )
                return ()
        from flightlog.core.patterns import pattern_problem  # few have patterns of their own

        kept: list[str] = []
        for number, pattern in enumerate(filter(None, map(str.strip, value.splitlines())), 1):
            problem = pattern_problem(pattern)
            if problem is None:
                kept.append(pattern)
            else:  # without the pattern, which may be the secret itself
                self.problems.append(f"pattern {number} of FLIGHTLOG_REDACT {problem}; it is ignored")
        return tuple(kept)
