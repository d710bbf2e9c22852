"""`otel:` of a manifest: where the run is sent while it runs, and that no secret of it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flightlog.core.errors import ManifestError
from flightlog.session.manifest import Manifest, parse_manifest
from flightlog.session.otel_config import otlp_arguments, otlp_environment, send_while_running
from flightlog.session.schema import Otel

HEAD = "version: 1\nproject: {name: a}\n"
RUN = Path("/runs/r")


def manifest(text: str) -> Manifest:
    return parse_manifest(HEAD + text, Path("flightlog.yaml"))


def otel(text: str, **environ: str) -> Any:
    return manifest(text).resolved(environ, "local").otel


def problems(text: str) -> list[str]:
    with pytest.raises(ManifestError) as error:
        manifest(text)
    return list(error.value.problems)


def test_it_may_be_said_in_one_word_or_in_full():
    assert (otel(""), otel("otel: true"), otel("otel: false")) == (None, True, False)
    text = "otel: {endpoint: 'http://a:4318', headers: {x-key: '${KEY}'}, metrics: false}"
    assert otel(text, KEY="s3cret") == Otel(
        endpoint="http://a:4318", headers={"x-key": "s3cret"}, metrics=False
    )


def test_an_overlay_may_send_elsewhere():
    text = "otel: {endpoint: 'http://a:4318'}\noverlays: {site: {otel: {endpoint: 'https://b'}}}"
    laid = manifest(text + "\ntargets: {local: {provider: local, overlay: site}}")
    assert laid.resolved({}, "local").otel == Otel(endpoint="https://b")


def test_what_makes_no_sense_is_said_with_its_line():
    assert problems("otel: {endpoint: 'a:4318', header: {}, traces: maybe}") == [
        "flightlog.yaml:3: otel.header: 'header' is no key; did you mean 'headers'?",
        "flightlog.yaml:3: otel.traces: 'maybe' is neither true nor false",
        "flightlog.yaml:3: otel.endpoint: 'a:4318' is not a server address: write http://HOST:PORT or "
        "https://HOST",
    ]
    for address in ("http://[::1", "http://a:port"):
        assert problems(f"otel: {{endpoint: '{address}'}}") == [
            f"flightlog.yaml:3: otel.endpoint: '{address}' is not a server address: write "
            "http://HOST:PORT or "
            "https://HOST"
        ]


def test_a_secret_that_would_be_kept_with_every_run_is_refused():
    assert problems("otel: {headers: {Authorization: Bearer abc, x-tenant: north}}") == [
        "flightlog.yaml:3: otel.headers.Authorization: is a secret, and the manifest is kept with every "
        "run: write "
        "${NAME} for a variable that holds it"
    ]
    for address in ("https://me:s3cret@a", "https://a/?api_key=s3cret"):
        assert problems(f"otel: {{endpoint: '{address}'}}") == [
            "flightlog.yaml:3: otel.endpoint: holds a secret, and the manifest is kept with every run: "
            "write ${NAME} "
            "for a variable that holds it"
        ]
    assert otel("otel: {endpoint: 'https://me:${PASSWORD}@a'}", PASSWORD="x").endpoint == "https://me:x@a"


def test_the_follower_is_told_by_the_standard_variables_and_an_address_that_is_no_secret_by_its_arguments():
    said = Otel(endpoint="http://a:4318", headers={"Authorization": "Bearer a,b"}, metrics=False, logs=True)
    assert otlp_arguments(RUN, said) == [
        "export",
        "/runs/r",
        "--to",
        "otlp",
        "--endpoint",
        "http://a:4318",
        "--follow",
    ]
    assert otlp_environment(said, {"HOME": "/h", "OTEL_EXPORTER_OTLP_HEADERS": "x=1"}) == {
        "HOME": "/h",
        "OTEL_EXPORTER_OTLP_HEADERS": "x=1,Authorization=Bearer%20a%2Cb",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "otlp",
    }


def test_an_address_that_holds_a_secret_is_no_argument_for_all_to_see():
    said = Otel(endpoint="https://me:s3cret@a")
    assert otlp_arguments(RUN, said) == ["export", "/runs/r", "--to", "otlp", "--follow"]
    assert otlp_environment(said, {}) == {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://me:s3cret@a"}


def test_nothing_is_started_where_telemetry_is_switched_off_or_not_asked_for(tmp_path: Path):
    send_while_running(tmp_path, True, {"OTEL_SDK_DISABLED": "True"})
    send_while_running(tmp_path, False, {})
    send_while_running(tmp_path, None, {})
    assert list(tmp_path.iterdir()) == []
