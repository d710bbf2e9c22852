"""The JSON Schema agrees with the checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from builders.manifests import WHOLE
from hypothesis import given
from hypothesis import strategies as st

from flightlog.core.errors import ManifestError
from flightlog.session.manifest import parse_manifest
from flightlog.session.schema import manifest_schema

SCHEMA = manifest_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["required"] == ["version", "project"]
    assert list(SCHEMA["properties"]) == [
        "version",
        "project",
        "targets",
        "components",
        "tasks",
        "cost",
        "otel",
        "alerts",
        "overlays",
    ]


def test_a_whole_manifest_is_valid() -> None:
    # An editor reads YAML 1.2, where `1:30:00` is text.
    VALIDATOR.validate(yaml.safe_load(WHOLE.replace("1:30:00", "'1:30:00'")))


@pytest.mark.parametrize(
    "more",
    [
        {"tasks": {"a": {"retires": 1}}},
        {"tasks": {"a": {"retries": -1}}},
        {"tasks": {"a": {"retries": "1"}}},
        {"tasks": {"a": {"cache": {"tll": "1d"}}}},
        {"tasks": {"a": {"timeout": "soon"}}},
        {"components": {"a": {"memory": "16 Gigs"}}},
        {"components": {"a": {"cpus": 0}}},
        {"targets": {"a": {"max_workers": 1}}},
        {"targets": {"a": {"provider": "local", "max_worker": 1}}},
        {"targets": {"a": {"provider": "local", "processes": 3}}},
        {"overlays": {"a": {"version": 1}}},
        {"overlays": {"a": {"tasks": {"b": {"retires": None}}}}},
        {"version": 2},
        {"extra": 1},
    ],
)
def test_what_the_checks_refuse_the_schema_refuses(more: dict[str, Any]) -> None:
    document = {"version": 1, "project": {"name": "a"}, **more}
    assert not VALIDATOR.is_valid(document)
    with pytest.raises(ManifestError):
        parse_manifest(yaml.safe_dump(document), Path("f.yaml"))


SIZES = st.from_regex(r"\A[0-9]{1,3}(\.[0-9])?(K|MB|GiB)\Z")
COMPONENTS = st.fixed_dictionaries(
    {},
    optional={
        "cpus": st.floats(0.1, 64, allow_nan=False).map(lambda x: round(x, 2)) | st.just("${CPUS}"),
        "memory": SIZES | st.integers(0, 10**12),
        "walltime": st.sampled_from(["90m", "01:00:00", "1h 30m", "2-00:00:00"]),
        "env": st.dictionaries(st.sampled_from("AB"), st.sampled_from([1, "x", True, None])),
        "tags": st.lists(st.sampled_from(["x", "y"])),
    },
)
TASKS = st.fixed_dictionaries(
    {},
    optional={
        "retries": st.integers(0, 9),
        "cache": st.booleans() | st.fixed_dictionaries({}, optional={"ttl": st.just("7d")}) | st.none(),
    },
)


@given(
    st.dictionaries(st.sampled_from("ab"), COMPONENTS),
    st.dictionaries(st.sampled_from("ab"), TASKS),
    st.dictionaries(st.sampled_from("ab"), COMPONENTS | st.none()),
)
def test_what_is_right_is_right_for_both(components: Any, tasks: Any, over: Any) -> None:
    document = {
        "version": 1,
        "project": {"name": "a"},
        "components": components,
        "tasks": tasks,
        "overlays": {"o": {"components": over}},
    }
    VALIDATOR.validate(document)
    parse_manifest(yaml.safe_dump(document), Path("f.yaml"))
