"""Digests of values: by type and content, the same everywhere."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import os
import pathlib
import subprocess
import sys
import threading
import uuid

import attrs
import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.session.digest.values import Unstable, digest_value


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Point:
    x: object
    y: object = 0

    @functools.cached_property
    def norm(self):
        return abs(self.x)


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    x: object


@attrs.define
class Box:
    x: object


class Row(msgspec.Struct):
    x: object


class Bag(set):
    pass


Pair = collections.namedtuple("Pair", "x y")


def double(x):
    return 2 * x


DIFFERENT = [
    None,
    False,
    True,
    0,
    1,
    -1,
    2**70,
    0.0,
    -0.0,
    1.0,
    float("nan"),
    float("inf"),
    1j,
    "",
    "1",
    "é",
    "\ud800",
    b"",
    b"1",
    bytearray(b"1"),
    memoryview(b"1"),
    [],
    [1],
    [1, 2],
    [2, 1],
    [[1], 2],
    [1, [2]],
    (),
    (1,),
    (1, 2),
    ((1, 2), 3),
    (1, (2, 3)),
    ("ab", "c"),
    ("a", "bc"),
    {},
    {1: 2},
    {"1": 2},
    {"a": 1, "b": 2},
    {"a": 2, "b": 1},
    set(),
    {1},
    {1, "1"},
    frozenset({1}),
    Bag([1]),
    [1.0] * 20,
    [1] * 20,
    [True] * 20,
    ["1"] * 20,
    (1,) * 20,
    [*["1"] * 19, "2"],
    [*["1"] * 18, "11", ""],
    [float("nan")] * 20,
    range(3),
    slice(1, 2),
    ...,
    Colour.RED,
    Colour.BLUE,
    Level.LOW,
    Point(1),
    Point(1.0),
    Point(2),
    Fixed(1),
    Box(1),
    Box(2),
    Row(1),
    Row("1"),
    Pair(1, 2),
    collections.OrderedDict(a=1, b=2),
    collections.OrderedDict(b=2, a=1),
    collections.defaultdict(int, a=1),
    collections.Counter("aab"),
    collections.deque([1]),
    array.array("d", [1]),
    datetime.date(2026, 5, 20),
    datetime.datetime(2026, 5, 20),
    datetime.datetime(2026, 5, 20, tzinfo=datetime.UTC),
    datetime.time(1),
    datetime.timedelta(1),
    decimal.Decimal(1),
    decimal.Decimal("1.0"),
    fractions.Fraction(1),
    uuid.UUID(int=1),
    pathlib.PurePosixPath("a"),
    pathlib.Path("no-such-file"),
    int,
    Point,
    double,
    functools.partial(double, 1),
    functools.partial(double, 2),
    len,
    np.sin,
    np.cos,
    np.float64(1),
    np.float32(1),
    np.int64(1),
    np.bool_(True),
    np.array(1.0),
    np.array([1.0]),
    np.array([[1.0]]),
    np.array([1]),
    np.array(["1"]),
    np.array([b"1"]),
    np.array([1], ">i4"),
    np.array([1], "<i4"),
    np.array(["2026-05-20"], "M8[D]"),
    np.array(["2026-05-20"], "M8[s]"),
    np.array([1, None], object),
    np.array([1, "x"], object),
    np.zeros((0, 2)),
    np.zeros((2, 0)),
    np.array([-0.0]),
    np.array([0.0]),
    np.array([np.nan]),
    np.longdouble(1) / 3,
    np.array([(1, 2.0)], [("a", "i1"), ("b", "f8")]),
    np.array([(2, 2.0)], [("a", "i1"), ("b", "f8")]),
    np.ma.array([1, 2], mask=[0, 1]),
    np.random.default_rng(1),
    np.random.default_rng(2),
    pd.DataFrame({"a": [1]}),
    pd.DataFrame({"a": [1.0]}),
    pd.DataFrame({"b": [1]}),
    pd.DataFrame({"a": [1]}, index=[1]),
    pd.DataFrame({"a": [1], "b": [2]}),
    pd.DataFrame({"b": [2], "a": [1]}),
    pd.DataFrame({"a": ["1"]}),
    pd.DataFrame({"a": [None, 1]}, dtype="Int64"),
    pd.DataFrame({"a": pd.Categorical(["1"])}),
    pd.DataFrame({"a": pd.to_datetime(["2026-05-20"])}),
    pd.DataFrame({"a": pd.to_datetime(["2026-05-20"], utc=True)}),
    pd.Series([1]),
    pd.Series([1], name="a"),
    pd.Index([1]),
    pd.RangeIndex(1, 2),
    pd.MultiIndex.from_tuples([(1, 2)]),
]


def test_values_that_differ_in_type_or_content_have_different_digests():
    found = {}
    for value in DIFFERENT:
        found.setdefault(digest_value(value), []).append(value)
    assert [values for values in found.values() if len(values) > 1] == []


class Namespaced:
    pass


def namespaced(**attributes):
    made = Namespaced()
    vars(made).update(attributes)
    return made


def copies():
    grid = np.arange(12.0).reshape(3, 4)
    table = pd.DataFrame({"a": [1, 2], "b": [3, 4], "c": ["x", None]})
    split = pd.concat([table[["a"]], table[["b", "c"]]], axis=1)
    asked = Point(1)
    assert asked.norm == 1
    return [
        ({3, "a", (1, 2)}, {(1, 2), "a", 3}),
        (float("nan"), -float("nan")),
        (["ab", "ab"], ["".join(["a", "b"]), "ab"]),  # one text twice, or two equal texts
        (grid, grid.copy(order="F")),
        (grid.T, np.ascontiguousarray(grid.T)),
        (grid[::2, ::-1], grid[::2, ::-1].copy()),
        (table, split),
        (Point(1), asked),
        (np.array([(1, 2.0)], np.dtype([("a", "i1"), ("b", "f8")], align=True)), _with_padding()),
        (np.array([1.5], "g"), np.array([3.0], "g") / 2),
        (namespaced(a=1, b=2), namespaced(b=2, a=1)),
    ]


def _with_padding():
    made = np.frombuffer(b"\xff" * 16, np.dtype([("a", "i1"), ("b", "f8")], align=True)).copy()
    made["a"], made["b"] = 1, 2.0
    return made


@pytest.mark.parametrize("pair", copies(), ids=lambda pair: type(pair[0]).__name__)
def test_values_of_one_type_and_content_have_one_digest_however_they_lie_in_memory(pair):
    assert digest_value(pair[0]) == digest_value(pair[1])


PLAIN = st.one_of(
    st.sampled_from(
        [None, False, True, 0, 1, 0.0, -0.0, 1.0, float("nan"), "", "0", "1", b"", b"1", "ab", "a"]
    ),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.binary(max_size=4),
)
HASHABLE = st.recursive(
    PLAIN,
    lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)),
    max_leaves=4,
)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.sets(HASHABLE, max_size=3),
        st.lists(st.sampled_from([0, 1, 1.0, "a", True]), min_size=15, max_size=18),
    ),
    max_leaves=8,
)


def by_type_and_content(value):
    kind = type(value).__name__
    if isinstance(value, float):
        return kind, "nan" if value != value else value.hex()
    if isinstance(value, list | tuple):
        return kind, tuple(map(by_type_and_content, value))
    if isinstance(value, set | frozenset):
        return kind, tuple(sorted(map(repr, map(by_type_and_content, value))))
    if isinstance(value, dict):
        items = [(by_type_and_content(key), by_type_and_content(item)) for key, item in value.items()]
        return kind, tuple(items)
    return kind, value


@given(VALUES, VALUES)
def test_two_digests_are_equal_if_and_only_if_type_and_content_are(a, b):
    assert (digest_value(a) == digest_value(b)) == (by_type_and_content(a) == by_type_and_content(b))


def shuffled(value):
    if isinstance(value, dict):
        return {shuffled(key): shuffled(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return type(value)(map(shuffled, reversed(list(value))))
    return type(value)(map(shuffled, value)) if isinstance(value, list | tuple) else value


@given(VALUES)
def test_a_copy_in_another_order_of_sets_has_the_same_digest(value):
    assert digest_value(shuffled(value)) == digest_value(value)


@pytest.mark.parametrize(
    "make",
    [dict, collections.Counter, functools.partial(collections.defaultdict, int), collections.OrderedDict],
)
def test_another_order_of_keys_is_another_value(make):
    assert digest_value(make({"a": 1, "b": 2})) != digest_value(make({"b": 2, "a": 1}))
    assert digest_value(make({1: 1, "b": 2})) != digest_value(make({"b": 2, 1: 1}))


PROGRAM = """
import sys; sys.path[:0] = {path!r}
import test_digest as t, numpy as np
from flightlog.session.digest.values import digest_value
values = [v for v in t.DIFFERENT] + [{{"b", "a", "c", 1, None, (1, "x")}}, {{t.double, len, t.Point}}]
print(*[digest_value(v).hex()[:16] for v in values])
"""


def test_digests_are_the_same_in_every_process_whatever_the_hash_seed():
    path = [str(pathlib.Path(__file__).parent)]
    found = set()
    for seed in ("0", "1", "4242"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PROGRAM.format(path=path)]
        found.add(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1
    assert len(found.pop().split()) == len(DIFFERENT) + 2


def test_a_file_counts_by_its_name_and_content_and_a_text_never(tmp_path):
    one, same, other = tmp_path / "a" / "f.txt", tmp_path / "b" / "f.txt", tmp_path / "f.txt"
    for file, text in ((one, "x"), (same, "x"), (other, "y")):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert digest_value(one) == digest_value(same) != digest_value(other)
    assert digest_value(str(one)) != digest_value(str(same))
    before = digest_value(one)
    one.write_text("z")
    assert digest_value(one) != before
    assert digest_value(one, files="path") != digest_value(same, files="path")
    assert digest_value(other) != digest_value(tmp_path / "missing")


def changing():
    class Changing:
        seen = 0

        def __reduce__(self):
            Changing.seen += 1
            return (int, (Changing.seen,))

    return Changing()


def itself():
    held = []
    held.append(held)
    return held


def deep():
    held = []
    for _ in range(10_000):
        held = [held]
    return held


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (object, "an object without a value"),
        (threading.Lock, "a _thread.lock, which cannot be pickled"),
        (lambda: (x for x in ()), "a builtins.generator, which cannot be pickled"),
        (lambda: [1, {"a": object()}], "an object without a value"),
        (lambda: pathlib.Path("/"), "the folder /, whose content is not looked at"),
        (changing, "whose value changes from one look to the next"),
        (itself, "a builtins.list that holds itself"),
        (deep, "values nested too deeply"),
    ],
)
def test_what_has_no_value_that_lasts_is_refused_with_the_reason(make, said):
    with pytest.raises(Unstable) as raised:
        digest_value(make())
    assert said in str(raised.value)


def test_a_pipe_is_refused_and_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unstable, match="which cannot be read"):
        digest_value(tmp_path / "pipe")


def test_polars_frames_count_by_their_columns():
    pl = pytest.importorskip("polars")
    frames = [
        pl.DataFrame({"a": [1, 2]}),
        pl.DataFrame({"a": [1, None]}),
        pl.DataFrame({"a": [1.0, 2.0]}),
        pl.DataFrame({"b": [1, 2]}),
        pl.DataFrame({"a": ["1", "2"]}),
        pl.DataFrame({"a": [[1], [2]]}),
        pl.DataFrame({"a": [datetime.date(2026, 5, 20)]}),
        pl.Series("a", [1, 2]),
    ]
    assert len({digest_value(frame) for frame in frames}) == len(frames)
    pieces = pl.concat([pl.DataFrame({"a": [1]}), pl.DataFrame({"a": [2]})], rechunk=False)
    assert digest_value(pieces) == digest_value(frames[0])
    with pytest.raises(Unstable, match="a plan and no data"):
        digest_value(frames[0].lazy())


def test_arrow_tables_count_by_their_columns_and_not_by_their_pieces():
    pa = pytest.importorskip("pyarrow")
    tables = [
        pa.table({"a": [1, 2]}),
        pa.table({"a": [1, None]}),
        pa.table({"a": [1.0, 2.0]}),
        pa.table({"b": [1, 2]}),
        pa.table({"a": ["1", "2"]}),
        pa.array([1, 2]),
    ]
    assert len({digest_value(table) for table in tables}) == len(tables)
    pieces = pa.concat_tables([pa.table({"a": [1]}), pa.table({"a": [2]})])
    assert digest_value(pieces) == digest_value(tables[0])


@pytest.mark.parametrize(
    "content",
    [[0, 1, 2, 3], [None, 1, 2, None], ["a", "bc", None, "d"], [[0], [1, 2], [3], None], [True] * 4],
)
def test_a_slice_of_arrow_data_counts_as_what_it_holds_and_not_as_what_it_was_cut_from(content):
    pa = pytest.importorskip("pyarrow")
    long, short = pa.array(content * 1000), pa.array(content[1:3], pa.array(content).type)
    assert digest_value(long.slice(1, 2)) == digest_value(short)
    batch, small = pa.record_batch({"a": long}), pa.record_batch({"a": short})
    assert digest_value(batch.slice(1, 2)) == digest_value(small)
    table, little = pa.table({"a": long}), pa.table({"a": short})
    assert digest_value(table.slice(1, 2)) == digest_value(little)
    assert len({digest_value(one) for one in (long, short, batch, small, table, little)}) == 6


def test_tensors_count_by_type_shape_and_content():
    torch = pytest.importorskip("torch")
    made = torch.arange(6.0).reshape(2, 3)
    assert digest_value(made) == digest_value(made.clone()) == digest_value(made.T.contiguous().T)
    others = [
        made.to(torch.bfloat16),
        made.double(),
        made.reshape(3, 2),
        made + 1,
        torch.tensor(1.0),
        torch.zeros(0),
    ]
    assert len({digest_value(tensor) for tensor in [made, *others]}) == 7
