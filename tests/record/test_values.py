from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import json
import math
import pathlib
import signal
import subprocess
import sys
import uuid
from typing import Any, NamedTuple

import attrs
import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.record.limits import RecordLimits
from flightlog.record.values import bounded, clean, nonfinite_name, represent


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


class Mode(enum.StrEnum):
    FAST = "fast"


@dataclasses.dataclass
class Layer:
    width: int
    weights: object = dataclasses.field(default=None, repr=False)


@attrs.define
class Solver:
    order: int = 2
    password: str = "hunter2"


class Model(msgspec.Struct):
    depth: int = 4


class Point(NamedTuple):
    x: float
    y: float


class Plain:
    pass


class Raising:
    def __repr__(self) -> str:
        raise ValueError("no")


class Endless:
    def __repr__(self) -> str:
        return repr(self)


class Lying:
    @property
    def __class__(self) -> type:
        raise RuntimeError("no class")


class Wrapped:
    """Something whose repr holds anything."""

    def __init__(self, inner: object) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"Wrapped({self.inner!r})"


class SubInt(int):
    def __str__(self) -> str:
        raise ValueError("no")


class Pages(collections.abc.Mapping[int, int]):
    """A mapping without an end."""

    def __getitem__(self, key: int) -> int:
        return key

    def __iter__(self) -> Any:
        number = 0
        while True:
            yield number
            number += 1

    def __len__(self) -> int:
        raise TypeError("no length")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (-(2**63), -(2**63)),
        (2**64 - 1, 2**64 - 1),
        (2**64, "18446744073709551616"),
        (10**5000, "<int, 16610 bits>"),
        (0.5, 0.5),
        ("text", "text"),
        ("a\udcff", "a\\udcff"),
        ("é\u2028", "é\u2028"),
        (b"0123456789", "<bytes, 10 bytes: 3031323334353637…>"),
        (bytearray(b"ab"), "<bytearray, 2 bytes: 6162>"),
        (memoryview(b"abc"), "<memoryview, 3 bytes>"),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (datetime.datetime(2026, 5, 20, 3, 52, tzinfo=datetime.UTC), "2026-05-20T03:52:00+00:00"),
        (datetime.date(2026, 5, 20), "2026-05-20"),
        (datetime.timedelta(seconds=90), "0:01:30"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("1.50"), "1.50"),
        (fractions.Fraction(1, 3), "1/3"),
        (1 + 2j, "(1+2j)"),
        (Colour.RED, "Colour.RED"),
        (Level.HIGH, 3),
        (Mode.FAST, "fast"),
        (SubInt(7), 7),
        (range(3), "range(0, 3)"),
        (array.array("d", [1.0, 2.0]), "<array d (2,)>"),
        (len, "<function builtins.len>"),
        (Plain, f"<class {__name__}.Plain>"),
        (math, "<module math>"),
        (Plain(), f"<{__name__}.Plain>"),
        (Raising(), f"<{__name__}.Raising, unreadable: ValueError>"),
        (Endless(), f"<{__name__}.Endless, unreadable: RecursionError>"),
        (Lying(), f"<{__name__}.Lying>"),
        ((x for x in ()), "<generator object <genexpr>>"),
        ((1, 2), [1, 2]),
        ({3, 1, 2}, [1, 2, 3]),
        (collections.deque([1]), [1]),
        (Point(1.0, 2.0), {"x": 1.0, "y": 2.0}),
        (Layer(3, object()), {"width": 3, "weights": "<not shown>"}),
        (Solver(), {"order": 2, "password": "[redacted]"}),
        (Model(), {"depth": 4}),
        ("https://bob:pw@host", "https://bob:[redacted]@host"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_of_value_has_its_json(value: object, expected: object) -> None:
    found = represent(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.array(2.5), 2.5),
        (np.longdouble(1.5), "1.5"),
        (np.datetime64("2026-05-20T03:52:00", "ns"), "2026-05-20T03:52:00.000000000"),
        (np.dtype("float64"), "float64"),
        (np.zeros((100, 3)), "<ndarray float64 (100, 3)>"),
        (np.zeros(4, dtype="int8"), "<ndarray int8 (4,)>"),
        (pd.DataFrame({"dtype": ["secret data"]}), "<DataFrame (1, 1)>"),
        (pd.Series([1, 2]), "<Series int64 (2,)>"),
        (pd.Timestamp("2026-05-20"), "2026-05-20T00:00:00"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers_of_numpy_are_numbers_and_arrays_are_described(value: object, expected: object) -> None:
    found = represent(value)
    assert found == expected
    assert type(found) is type(expected)


def test_nan_and_infinities_become_null_with_a_marker_at_their_path() -> None:
    assert clean({"loss": math.nan, "a": {"b": [1.0, math.inf]}, "c": np.float32("-inf")}) == (
        {"loss": None, "a": {"b": [1.0, None]}, "c": None},
        {"loss": "nan", "a.b.1": "inf", "c": "-inf"},
    )
    assert [nonfinite_name(x) for x in (math.nan, math.inf, -math.inf, 0.0, -1e308)] == [
        "nan",
        "inf",
        "-inf",
        None,
        None,
    ]


def test_keys_that_become_the_same_text_are_all_kept() -> None:
    assert clean({1: "int", "1": "text", None: 0, (1, 2): "pair", math.nan: "nan"}) == (
        {"1": "int", "1 (str)": "text", "None": 0, "[1, 2]": "pair", "nan": "nan"},
        {},
    )


def test_one_unreadable_key_or_value_does_not_take_the_others_with_it() -> None:
    assert clean({Lying(): 1, Raising(): 2, "a": [Lying(), 3], "b": Wrapped(Raising())})[0] == {
        f"<{__name__}.Lying>": 1,
        f"<{__name__}.Raising, unreadable: ValueError>": 2,
        "a": [f"<{__name__}.Lying>", 3],
        "b": f"<{__name__}.Wrapped, unreadable: ValueError>",
    }


def test_values_of_secret_names_are_redacted_at_any_depth_but_not_their_absence() -> None:
    assert clean({"api_key": 5, "password": None, "token": "", "auth": True, "db": [{"password": ["x"]}]})[
        0
    ] == {
        "api_key": "[redacted]",
        "password": None,
        "token": "",
        "auth": True,
        "db": [{"password": "[redacted]"}],
    }


def test_names_of_metrics_hide_nothing_but_names_inside_them_do() -> None:
    assert clean({"token": 5, "args": {"token": "x"}}, keys_secret=False)[0] == {
        "token": 5,
        "args": {"token": "[redacted]"},
    }


def test_a_long_text_is_cut_and_says_how_much_is_missing() -> None:
    assert represent("x" * 100, limit=10) == "xxxxxxxxxx… [+90 characters]"
    assert bounded("y" * 10, 10) == "y" * 10
    long = bounded("z" * 1_000_000, 100)
    assert long == "z" * 100 + "… [+999900 characters]"


def test_a_secret_that_reaches_over_the_cut_is_redacted_all_the_same() -> None:
    text = "https://bob:" + "p" * 50 + "@host/path"
    assert "pp" not in bounded(text, 20)


def test_many_items_are_cut_and_counted() -> None:
    found, _ = clean({"list": list(range(250)), "map": dict.fromkeys(range(101)), "endless": Pages()})
    assert found["list"] == [*range(RecordLimits.max_value_items), "… [+150 items]"]
    assert len(found["map"]) == RecordLimits.max_value_items + 1
    assert found["map"]["…"] == "… [+1 item]"
    assert found["endless"]["…"] == "… [more items]"


def test_depth_is_bounded() -> None:
    nested: Any = "deep"
    for _ in range(20):
        nested = [nested]
    assert represent(nested) == [[[[[["<list, 1 item>"]]]]]]


def test_a_cycle_is_named_and_not_followed() -> None:
    ring: dict[str, Any] = {"name": "ring"}
    ring["self"] = [ring]
    assert clean(ring)[0] == {"name": "ring", "self": ["<cycle: dict>"]}
    shared = [1]
    assert represent([shared, shared]) == [[1], [1]]


def test_the_whole_is_bounded_however_it_branches() -> None:
    branching: Any = "x" * 5000
    for _ in range(6):
        branching = [branching] * 100
    encoded = msgspec.json.encode(represent(branching))
    assert encoded.count(b",") < RecordLimits.max_value_nodes + 100
    assert len(encoded) < 400_000


def test_the_original_is_not_changed() -> None:
    value = {"a": [1, {"password": "x"}], "b": math.nan}
    clean(value)
    assert value["a"] == [1, {"password": "x"}]
    assert math.isnan(value["b"])


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit, BaseException])
def test_an_object_that_raises_what_ends_programs_is_unreadable_like_any_other(
    stop: type[BaseException],
) -> None:
    class Stopping:
        def __repr__(self) -> str:
            raise stop

    name = f"{__name__}.{Stopping.__qualname__}"
    assert represent(Stopping()) == f"<{name}, unreadable: {stop.__name__}>"


def test_ctrl_c_in_the_middle_of_an_objects_code_passes_through() -> None:
    class Interrupted:
        def __repr__(self) -> str:
            signal.raise_signal(signal.SIGINT)
            return "not interrupted"

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            represent(Interrupted())
    finally:
        signal.signal(signal.SIGINT, before)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary(max_size=20)
    | st.complex_numbers()
    | st.decimals()
    | st.datetimes()
    | st.uuids()
    | st.sampled_from([Colour.RED, Level.HIGH, Plain(), np.float32("nan"), np.zeros(2)])
)
KEYS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(max_size=4)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=6)
        | inner.map(Wrapped)
        | st.builds(Layer, inner, inner)
    ),
    max_leaves=30,
)


@given(st.dictionaries(KEYS, VALUES, max_size=8), st.integers(1, 100))
def test_any_value_encodes_and_parses_and_loses_no_key(value: dict[Any, Any], limit: int) -> None:
    cleaned, nonfinite = clean(value, limit=limit)
    encoded = msgspec.json.encode(cleaned)
    assert json.loads(encoded) == cleaned
    assert len(cleaned) == len(value)
    assert set(nonfinite.values()) <= {"nan", "inf", "-inf"}


def test_nothing_that_is_described_gets_imported() -> None:
    code = (
        "import sys\n"
        "from flightlog.record.values import clean\n"
        "clean({'a': 1, 'b': [object()], 'c': {1.5}, 'd': b'x', 'e': len})\n"
        "print(sorted({'numpy', 'pandas', 'torch', 'attrs'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
