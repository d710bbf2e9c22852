"""`otel:` of a manifest: the run goes to an OpenTelemetry server while it runs, by a follower beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

from flightlog.core.redaction import is_secret_key
from flightlog.record.followers import start_follower
from flightlog.session.expansion import has_variables
from flightlog.session.schema import Otel

FOLLOWER = "otlp"
"""What the follower is called that the standard variables ask for, too: one run has one."""


def send_while_running(run: Path, otel: bool | Otel | None, environ: Mapping[str, str]) -> None:
    """Start the follower where the manifest asks for one; never raises. What the environment asked for goes
    first.
    """
    off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if otel is None or otel is False or off:
        return
    said = Otel() if otel is True else otel
    start_follower(run, FOLLOWER, otlp_arguments(run, said), environ=otlp_environment(said, environ))


def otlp_arguments(run: Path, otel: Otel) -> Sequence[str]:
    """What `flightlog` is called with; an address is named only where it can hold no secret."""
    public = otel.endpoint is not None and not _may_be_secret(otel.endpoint)
    endpoint = ["--endpoint", otel.endpoint] if public and otel.endpoint is not None else []
    return ["export", str(run), "--to", "otlp", *endpoint, "--follow"]


def otlp_environment(otel: Otel, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the follower: the standard variables as the manifest says, where it says
    anything.
    """
    made = dict(environ)
    if otel.endpoint is not None and _may_be_secret(otel.endpoint):
        made["OTEL_EXPORTER_OTLP_ENDPOINT"] = otel.endpoint
    if otel.headers:
        pairs = [f"{quote(name)}={quote(value)}" for name, value in otel.headers.items()]
        made["OTEL_EXPORTER_OTLP_HEADERS"] = ",".join(
            [*filter(None, [made.get("OTEL_EXPORTER_OTLP_HEADERS")]), *pairs]
        )
    for signal in ("traces", "metrics", "logs"):
        wanted = getattr(otel, signal)
        if wanted is not None:
            made[f"OTEL_{signal.upper()}_EXPORTER"] = "otlp" if wanted else "none"
    return made


def header_problem(name: str, written: str) -> str | None:
    """What is wrong with a header as it is written: a secret in the manifest would be kept with every run."""
    if is_secret_key(name) and not has_variables(written):
        return (
            "is a secret, and the manifest is kept with every run: write ${NAME} for a variable that holds it"
        )
    return None


def endpoint_secret(written: str) -> str | None:
    """What is wrong with an address as it is written: a password or token in it would be kept with every
    run.
    """
    try:
        parts = urlsplit(written)
    except ValueError:
        return None
    named = any(is_secret_key(name) for name, _ in parse_qsl(parts.query))
    if (parts.password or named) and not has_variables(written):
        return (
            "holds a secret, and the manifest is kept with every run: write ${NAME} for a variable that "
            "holds it"
        )
    return None


def endpoint_problem(endpoint: str) -> str | None:
    """What is wrong with an address."""
    with suppress(ValueError):
        parts = urlsplit(endpoint)
        parts.port  # noqa: B018 - raises where it is no number
        if parts.scheme in {"http", "https"} and parts.hostname:
            return None
    return "is not a server address: write http://HOST:PORT or https://HOST"


def _may_be_secret(endpoint: str) -> bool:
    parts = urlsplit(endpoint)
    return bool(parts.username or parts.password or parts.query)
