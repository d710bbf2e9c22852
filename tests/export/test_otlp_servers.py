"""Where a run is sent, by the option and by the standard variables."""

from __future__ import annotations

import pytest

from flightlog.core.errors import UsageError
from flightlog.export.otlp.exporter import Endpoint, servers, shown


def urls(environ: dict[str, str], endpoint: str | None = None) -> dict[str, str]:
    return {signal: server.url for signal, server in servers(environ, endpoint).items()}


def test_without_a_word_it_is_the_collector_on_this_machine():
    assert urls({}) == {
        "traces": "http://localhost:4318/v1/traces",
        "metrics": "http://localhost:4318/v1/metrics",
        "logs": "http://localhost:4318/v1/logs",
    }


def test_the_option_goes_before_the_variables_and_a_signals_own_variable_before_the_common_one():
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://otel.example/in/",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://traces.example/here",
    }
    assert urls(environ) == {
        "traces": "https://traces.example/here",
        "metrics": "https://otel.example/in/v1/metrics",
        "logs": "https://otel.example/in/v1/logs",
    }
    assert urls(environ, "http://a:1")["traces"] == "http://a:1/v1/traces"


def test_a_query_stays_behind_the_path():
    assert urls({}, "http://a:1/in?key=1")["logs"] == "http://a:1/in/v1/logs?key=1"


def test_an_address_that_ends_with_a_signal_takes_that_one_alone():
    assert urls({}, "http://a:1/v1/traces") == {"traces": "http://a:1/v1/traces"}


def test_signals_that_are_switched_off_go_nowhere():
    assert list(urls({"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"})) == ["traces"]
    with pytest.raises(UsageError, match="nothing is to be sent"):
        servers({f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")})


def test_headers_compression_timeout_and_certificates_are_those_of_the_variables():
    found = servers(
        {
            "OTEL_EXPORTER_OTLP_HEADERS": "x-a=1, Authorization=Basic%20abc%3D",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
            "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT": "3",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": "/ca.pem",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
        },
        "https://a",
    )
    headers = {"x-a": "1", "Authorization": "Basic abc="}
    assert found["traces"] == Endpoint(
        signal="traces",
        url="https://a/v1/traces",
        headers=headers,
        timeout_s=2.5,
        gzip=True,
        content_type="application/json",
        certificate="/ca.pem",
    )
    assert found["logs"].timeout_s == 3.0


@pytest.mark.parametrize(
    "address",
    ["localhost:4318", "grpc://a:4317", "http://", "http://[::1", "http://a:port", "http://a b:1", ""],
)
def test_what_is_no_address_is_refused(address: str):
    with pytest.raises(UsageError, match="server address"):
        servers({}, address)


def test_a_wrong_address_is_named_without_what_may_be_secret_in_it():
    with pytest.raises(UsageError, match=r"^'a:port/v1' is not a server address"):
        servers({}, "http://me:s3cret@a:port/v1?key=s3cret")


@pytest.mark.parametrize("text", ["x-key=s3cret%0Aother", "x-key=s3cret%E2%82%AC", "x key=s3cret"])
def test_a_header_that_http_cannot_hold_is_refused_without_repeating_it(text: str):
    with pytest.raises(UsageError, match="holds a character that HTTP does not allow") as found:
        servers({"OTEL_EXPORTER_OTLP_HEADERS": text})
    assert "s3cret" not in str(found.value)


def test_grpc_is_refused_with_what_to_do():
    with pytest.raises(UsageError, match=r"says 'grpc'.*http/protobuf.*4318"):
        servers({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})


def test_what_may_be_secret_in_an_address_is_not_shown():
    assert shown("https://me:pass@a.example:1/v1/traces?key=s") == "https://a.example:1/v1/traces"
