"""Arguments as they are recorded: by name, bounded, redacted, and with a digest that matches calls between
runs."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.record.values import clean
from flightlog.session.client import digest, named_arguments, recorded, task_name


def plain(a, b=2, *rest, c=3, **more): ...


def positional_only(a, /, **more): ...


class Model:
    def fit(self, x, y=0): ...

    def __call__(self, z): ...


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "expected"),
    [
        (plain, (1,), {}, {"a": 1}),
        (plain, (1, 5), {"c": 4}, {"a": 1, "b": 5, "c": 4}),
        (plain, (), {"c": 4, "b": 5, "a": 1}, {"a": 1, "b": 5, "c": 4}),
        (plain, (1, 2, 3, 4), {"other": 5}, {"a": 1, "b": 2, "rest": [3, 4], "other": 5}),
        (positional_only, (1,), {"a": 2}, {"a": 1, "a (keyword)": 2}),
        (Model().fit, (1,), {"y": 2}, {"x": 1, "y": 2}),
        (Model(), (1,), {}, {"z": 1}),
        (functools.partial(plain, 1, c=9), (2,), {"c": 8}, {"a": 1, "b": 2, "c": 8}),
        (max, (1, 2), {}, {"arg0": 1, "arg1": 2}),
        (plain, (), {}, {}),
    ],
)
def test_arguments_are_named_as_the_signature_does(function, args, kwargs, expected):
    found = named_arguments(function, args, kwargs)
    assert found == expected
    assert list(found) == list(expected)


def test_tasks_are_called_as_their_functions():
    assert [task_name(one) for one in (plain, functools.partial(plain, 1), Model().fit, Model(), max)] == [
        "plain",
        "plain",
        "fit",
        "Model",
        "max",
    ]


values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers(), max_size=3)
)


@given(st.dictionaries(st.text(max_size=20), values, max_size=5))
def test_arguments_are_recorded_as_the_closer_look_would(arguments):
    assert repr(recorded(arguments)) == repr(clean(arguments)[0])


def test_secrets_among_arguments_are_not_recorded():
    assert recorded({"password": "hunter2", "api_key": 12345, "x": 1}) == {
        "password": "[redacted]",
        "api_key": "[redacted]",
        "x": 1,
    }


@given(st.dictionaries(st.text(max_size=5), st.integers(), min_size=1, max_size=5))
def test_a_digest_does_not_depend_on_the_order_of_keywords(arguments):
    assert digest(arguments) == digest(dict(reversed(arguments.items())))


def test_a_digest_is_the_same_in_another_process_and_tells_values_and_names_apart():
    calls = [{"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 1, "c": 2}, {"a": "1", "b": 2}]
    here = [digest(call) for call in calls]
    assert len(set(here)) == 4
    program = f"from flightlog.session.client import digest; print([digest(c) for c in {calls!r}])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == repr(here)
    assert digest({}) is None
