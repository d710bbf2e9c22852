from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.core import settings
from flightlog.core.patterns import pattern_problem
from flightlog.core.settings import DOCUMENTED, Settings, cache_folder, read_settings, redact_patterns

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_an_empty_environment_gives_the_defaults() -> None:
    assert read_settings({}) == Settings(
        runs_dir=Path(".flightlog/runs"),
        enabled=True,
        parquet=False,
        remote=None,
        run=None,
        traceparent=None,
        problems=(),
    )


def test_empty_and_blank_variables_count_as_unset() -> None:
    assert read_settings(dict.fromkeys(DOCUMENTED, "")) == read_settings({})
    assert read_settings(dict.fromkeys(DOCUMENTED, "  ")) == read_settings({})


def test_every_variable_is_taken() -> None:
    assert read_settings(
        {
            "FLIGHTLOG_RUNS_DIR": "/data/runs",
            "FLIGHTLOG_TELEMETRY": "off",
            "FLIGHTLOG_TELEMETRY_PARQUET": "1",
            "FLIGHTLOG_RUNS_DIR_REMOTE": "s3://bucket/runs",
            "FLIGHTLOG_RUN": "/data/runs/run-1",
            "TRACEPARENT": TRACE,
        }
    ) == Settings(
        runs_dir=Path("/data/runs"),
        enabled=False,
        parquet=True,
        remote="s3://bucket/runs",
        run="/data/runs/run-1",
        traceparent=TRACE,
    )


@pytest.mark.parametrize("word", ["1", "true", "TRUE", "on", "On", "yes", " 1 "])
def test_a_switch_is_on_in_any_spelling(word: str) -> None:
    found = read_settings({"FLIGHTLOG_TELEMETRY": word, "FLIGHTLOG_TELEMETRY_PARQUET": word})
    assert (found.enabled, found.parquet, found.problems) == (True, True, ())


@pytest.mark.parametrize("word", ["0", "false", "False", "off", "OFF", "no"])
def test_a_switch_is_off_in_any_spelling(word: str) -> None:
    found = read_settings({"FLIGHTLOG_TELEMETRY": word, "FLIGHTLOG_TELEMETRY_PARQUET": word})
    assert (found.enabled, found.parquet, found.problems) == (False, False, ())


def test_a_bad_switch_is_one_message_and_the_default() -> None:
    found = read_settings({"FLIGHTLOG_TELEMETRY": "maybe", "FLIGHTLOG_TELEMETRY_PARQUET": "2"})
    assert found == Settings(
        problems=(
            "FLIGHTLOG_TELEMETRY='maybe' is neither on nor off (use 0, 1, true, false, on or off); "
            "recording stays on",
            "FLIGHTLOG_TELEMETRY_PARQUET='2' is neither on nor off (use 0, 1, true, false, on or off); "
            "no Parquet copies are made",
        )
    )


def test_the_home_folder_is_expanded() -> None:
    found = read_settings({"FLIGHTLOG_RUNS_DIR": "~/runs", "FLIGHTLOG_CACHE_DIR": "~/kept"})
    assert (found.runs_dir, found.cache_dir) == (Path.home() / "runs", Path.home() / "kept")


@pytest.mark.parametrize("value", [None, "", " ", "kept", "~/kept", "~no-such-user-here/kept", "a\0b"])
def test_the_cache_folder_asked_for_alone_is_that_of_all_settings(value: str | None) -> None:
    environ = {} if value is None else {"FLIGHTLOG_CACHE_DIR": value}
    assert cache_folder(environ) == read_settings(environ).cache_dir


def test_a_cache_folder_of_nobody_is_a_message_and_counts_as_unset() -> None:
    found = read_settings({"FLIGHTLOG_CACHE_DIR": "~no-such-user-here/kept"})
    assert found == Settings(
        problems=(
            "FLIGHTLOG_CACHE_DIR='~no-such-user-here/kept' names a home folder that does not exist; "
            "it counts as unset",
        )
    )


def test_a_home_folder_of_nobody_is_a_message_and_the_default() -> None:
    found = read_settings({"FLIGHTLOG_RUNS_DIR": "~no-such-user-here/runs"})
    assert found.runs_dir == Path(".flightlog/runs")
    assert found.problems == (
        "FLIGHTLOG_RUNS_DIR='~no-such-user-here/runs' names a home folder that does not exist; "
        "runs go to .flightlog/runs",
    )


def test_a_relative_run_to_join_is_a_message_and_not_joined() -> None:
    found = read_settings({"FLIGHTLOG_RUN": "runs/run-1"})
    assert (found.run, len(found.problems)) == (None, 1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1", "auto"),
        ("auto", "auto"),
        ("Torch", "torch"),
        ("torch.cuda", "torch.cuda"),
        ("jax", "jax"),
        ("0", None),
        ("", None),
    ],
)
def test_device_memory_is_tracked_of_a_framework_of_any_or_not_at_all(value, expected):
    found = read_settings({"FLIGHTLOG_DEVICE_MEMORY": value})
    assert (found.device_memory, found.problems) == (expected, ())


def test_the_interval_of_device_memory_is_seconds():
    assert read_settings({}).device_memory_interval_s == 0.1
    assert read_settings({"FLIGHTLOG_DEVICE_MEMORY_INTERVAL": "0.5"}).device_memory_interval_s == 0.5
    found = read_settings({"FLIGHTLOG_DEVICE_MEMORY_INTERVAL": "often", "FLIGHTLOG_DEVICE_MEMORY": "cupy"})
    assert (found.device_memory, found.device_memory_interval_s) == (None, 0.1)
    assert found.problems == (
        "FLIGHTLOG_DEVICE_MEMORY='cupy' is no framework (use torch, jax, tensorflow, 1 or 0); "
        "no device memory is tracked",
        "FLIGHTLOG_DEVICE_MEMORY_INTERVAL='often' is no positive number of seconds; it is 0.1",
    )


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "True"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, True),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
                "OTEL_TRACES_EXPORTER": "none",
                "OTEL_METRICS_EXPORTER": "none",
                "OTEL_LOGS_EXPORTER": "none",
            },
            False,
        ),
    ],
)
def test_runs_are_sent_where_the_standard_variables_name_an_endpoint(variables, expected):
    assert read_settings(variables).otlp is expected


def test_the_end_of_a_run_may_wait_for_nobody():
    assert read_settings({}).followers_wait_s == 5.0
    assert read_settings({"FLIGHTLOG_FOLLOWERS_WAIT": "0"}).followers_wait_s == 0.0
    found = read_settings({"FLIGHTLOG_FOLLOWERS_WAIT": "-1"})
    assert (found.followers_wait_s, found.problems) == (
        5.0,
        ("FLIGHTLOG_FOLLOWERS_WAIT='-1' is no positive number of seconds; it is 5",),
    )


@pytest.mark.parametrize(
    "value",
    [
        "nonsense",
        TRACE.upper(),
        TRACE + "-more",
        "ff" + TRACE[2:],
        "00-" + "0" * 32 + TRACE[35:],
        TRACE[:36] + "0" * 16 + "-01",
        TRACE[:-1],
    ],
)
def test_a_trace_context_that_is_not_the_standards_is_a_message_and_none(value: str) -> None:
    found = read_settings({"TRACEPARENT": value})
    assert (found.traceparent, len(found.problems)) == (None, 1)


def test_a_trace_context_of_a_newer_version_is_taken_without_what_it_adds() -> None:
    assert read_settings({"TRACEPARENT": "01" + TRACE[2:] + "-more"}).traceparent == "01" + TRACE[2:]


@given(st.dictionaries(st.sampled_from(sorted(DOCUMENTED)), st.text(max_size=200)))
def test_no_value_of_any_variable_raises(environ: dict[str, str]) -> None:
    found = read_settings(environ)
    assert len(found.problems) <= len(environ)
    assert all(len(problem) < 1500 for problem in found.problems)


def test_every_variable_that_is_read_is_documented() -> None:
    source = Path(settings.__file__).read_text(encoding="utf-8")
    assert set(re.findall(r'"(FLIGHTLOG_[A-Z_]+|OTEL_[A-Z_]+|TRACEPARENT)"', source)) == set(DOCUMENTED)


def test_an_address_for_a_folder_of_runs_is_read_from_and_recording_goes_to_the_default() -> None:
    found = read_settings({"FLIGHTLOG_RUNS_DIR": " s3://key:secret@bucket/runs "})
    assert (found.runs_dir, found.runs_address) == (Path(".flightlog/runs"), "s3://key:secret@bucket/runs")
    assert found.problems == (
        "FLIGHTLOG_RUNS_DIR is an address: runs are read from it, and not recorded to it; "
        "they go to .flightlog/runs, "
        "and FLIGHTLOG_RUNS_DIR_REMOTE has them copied to an address",
    )


def test_copies_of_remote_runs_have_a_folder_and_a_size() -> None:
    found = read_settings({"FLIGHTLOG_REMOTE_CACHE": "~/copies", "FLIGHTLOG_REMOTE_CACHE_MAX": "2GB"})
    assert (found.remote_cache, found.remote_cache_max_bytes) == (Path.home() / "copies", 2_000_000_000)
    found = read_settings({"FLIGHTLOG_REMOTE_CACHE_MAX": "much"})
    assert found.remote_cache_max_bytes == 10 << 30
    assert found.problems == (
        "FLIGHTLOG_REMOTE_CACHE_MAX='much' is no size (use for example 2GB); it is 10.0 GiB",
    )


def test_patterns_for_redaction_come_from_a_variable_or_a_file_and_bad_ones_are_named_by_number(
    tmp_path: Path,
) -> None:
    patterns = ["PROJ-[0-9]+", "(", "(a+)+b", "x*", "case (\\w+)"]
    file = tmp_path / "patterns"
    file.write_text("\n".join(patterns))
    for value in ("\n".join(patterns), f"@{file}"):
        assert redact_patterns({"FLIGHTLOG_REDACT": value}) == ("PROJ-[0-9]+", "case (\\w+)")
        assert read_settings({"FLIGHTLOG_REDACT": value}).problems == (
            "pattern 2 of FLIGHTLOG_REDACT is no regular expression "
            "(missing ), unterminated subpattern at position 0); "
            "it is ignored",
            "pattern 3 of FLIGHTLOG_REDACT has too many repetitions that can match the same text, "
            "which may take for ever: "
            "(a+)+b; it is ignored",
            "pattern 4 of FLIGHTLOG_REDACT matches the empty text; it is ignored",
        )
    assert read_settings({"FLIGHTLOG_REDACT": f"@{tmp_path}/none"}).problems == (
        "FLIGHTLOG_REDACT names a file that cannot be read (No such file or directory); it counts as unset",
    )


def test_a_pattern_that_may_take_for_ever_is_refused_and_plain_ones_are_not() -> None:
    slow = ("(a|aa)+!", "(aa?)+b", "(a+)+b", "(a|aa){1,50}!")
    overlapping = {
        **dict(zip(slow, slow, strict=True)),
        "a*a*a*b": "a*a*a*b",
        r"\w+.*\w+=hunter2": r"\w+.*\w+=…",
        "a?" * 30 + "a" * 30: "a?" * 30 + "…",
        r"[a-z]*[b-y]*x+z": r"[a-z]*[b-y]*x+z",
        "(?i:a*)A*a*-": "(?i:a*)A*a*-",
        "(?:a|)" * 13 + "(?:b|)" * 13 + "a" * 3: ("(?:a|)" * 13 + "(?:b|)" * 13)[:80],
        "a*(?=a*a*c)b": "a*(?=a*a*c)b",
        r"\w+(?=\w+\w+!):": r"\w+(?=\w+\w+!):",
    }
    fine = (
        r"ACME-\d+",
        r"\d{1,3}(?:\.\d{1,3}){3}",
        r"(?:foo|bar)-\w+",
        r"(?:\w{3}-)+x",
        r"[A-Z]+-[0-9]+-[a-z]+",
        r"[\w.+-]+@[\w-]+\.[\w.-]+",
        r"\s*key\s*=\s*(\S+)",
        r".*patient.*",
        "a*+a*+a*+b",
        r"(?:\d[ -]?){13,16}",
        r"(?:ab|cd)+x",
        r"(?:\w+\.)+internal",
        r"(?:[A-Z][a-z]+ )+Ltd",
    )
    unclear = (r"(?i)(?:sx|\u017fx)*z", r"(?:\w|(?a:\W))*z", r"(?:\dx|[^\x00-\u0900]x)*z", r"(?:[^,]+,)+x")
    nested = "repeats a repetition or a choice, which may take for ever"
    assert all((pattern_problem(pattern) or "").startswith(nested) for pattern in unclear)
    many = "has too many repetitions that can match the same text, which may take for ever"
    assert {pattern: pattern_problem(pattern) for pattern in (*overlapping, *fine)} == {
        **{pattern: f"{many}: {shown}" for pattern, shown in overlapping.items()},
        **dict.fromkeys(fine),
    }
