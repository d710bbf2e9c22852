"""`cacheable` in Scalable's form: the same decorator, and no result that is not the call's."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scalable_work as work

import flightlog
from flightlog.compat.scalable import (
    DirType,
    FileType,
    GenericType,
    ObjectType,
    ScalableSession,
    UtilityType,
    ValueType,
    cacheable,
)
from flightlog.compat.scalable.caching import convert_to_type
from flightlog.core.errors import UsageError
from flightlog.store.completing import open_run


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name in [*os.environ]:
        if name.startswith(("SCALABLE_", "FLIGHTLOG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SCALABLE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def counted(**options):
    """A function that is cacheable, and the arguments it was called with."""
    calls = []

    @cacheable(**options)
    def function(x, y=0):
        calls.append((x, y))
        return x

    return function, calls


def test_a_result_is_computed_once(folder):
    function, calls = counted(return_type=ValueType, x=ValueType)
    assert [function(1), function(1), function(x=1), function(2)] == [1, 1, 1, 2]
    assert calls == [(1, 0), (2, 0)]
    assert (folder / "cache").is_dir()


def test_it_decorates_with_and_without_arguments():
    @cacheable
    def bare(x):
        return x + 1

    @cacheable()
    def called(x):
        return x + 2

    @cacheable(ValueType)
    def typed(x):
        return x + 3

    assert [bare(1), called(1), typed(1)] == [2, 3, 4]
    assert [bare.__name__, called.__name__, typed.__name__] == ["bare", "called", "typed"]


def test_the_order_and_the_type_of_arguments_count():
    @cacheable
    def sub(a, b):
        return a - b

    @cacheable
    def kind(x):
        return type(x).__name__

    assert [sub(5, 3), sub(3, 5)] == [2, -2]
    assert [kind(1), kind("1"), kind(1.0), kind(True)] == ["int", "str", "float", "bool"]


def test_none_is_a_result():
    function, calls = counted()
    assert [function(None), function(None), len(calls)] == [None, None, 1]


def test_arrays_count_by_type_and_content():
    function, calls = counted(x=UtilityType, y=ObjectType)
    for array in (np.arange(3), np.arange(3), np.arange(3, dtype="int32")):
        function(array, {"k": [1]})
    assert len(calls) == 2


def test_a_file_counts_by_its_name_and_content(folder):
    function, calls = counted(x=FileType)
    path = folder / "data.txt"
    for text in ("a", "a", "b"):
        path.write_text(text)
        assert function(str(path)) == str(path)
    assert len(calls) == 2
    (folder / "elsewhere").mkdir()
    path.rename(folder / "elsewhere/data.txt")
    function(str(folder / "elsewhere/data.txt"))
    assert len(calls) == 2


def test_a_file_that_is_missing_is_told():
    function, calls = counted(x=FileType)
    with pytest.raises(ValueError, match="there is nothing to read at 'missing"):
        function("missing.txt")
    assert calls == []


def test_a_folder_counts_by_all_that_is_in_it(folder):
    function, calls = counted(x=DirType)
    (folder / "data/sub").mkdir(parents=True)
    (folder / "data/sub/a.txt").write_text("a")
    function("data")
    function("data")
    (folder / "data/sub/b.txt").write_text("b")
    function("data")
    assert len(calls) == 2


def test_a_text_that_is_a_path_counts_by_what_is_there_too(folder, monkeypatch):
    function, calls = counted()
    path = folder / "config.ini"
    for text in ("a", "b"):
        path.write_text(text)
        assert function("config.ini", [{"deep": str(path)}]) == "config.ini"
    assert len(calls) == 2
    monkeypatch.setenv("SCALABLE_PATH_SNIFFING", "0")
    for text in ("c", "d"):
        path.write_text(text)
        function("config.ini")
    assert len(calls) == 3


def test_a_class_of_ones_own_counts_by_its_hash():
    class Parity(GenericType):
        def __hash__(self):
            return self.value % 2

    function, calls = counted(x=Parity)
    assert [function(1), function(3), function(2)] == [1, 1, 2]
    assert calls == [(1, 0), (2, 0)]


def test_recompute_computes_each_time():
    function, calls = counted(recompute=True)
    function(1)
    function(1)
    assert len(calls) == 2


def test_a_call_may_pass_the_kept_result_by():
    function, calls = counted(return_type=dict, x=int)
    assert [function(1), function(1, _cache_bypass=True), function(1)] == [1, 1, 1]
    assert len(calls) == 2


def test_another_version_is_another_function():
    made = []
    for version in ("1", "1", "2"):

        @cacheable(x=int, _version=version)
        def function(x):
            made.append(x)
            return x

        function(1)
    assert len(made) == 2


@pytest.mark.parametrize("options", [{"void": True}, {"store": False}])
def test_what_is_not_to_be_kept_is_called_each_time(folder, options):
    function, calls = counted(**options)
    function(1)
    function(1)
    assert len(calls) == 2
    assert not (folder / "cache").exists()


def test_an_output_that_was_changed_is_made_again(folder):
    made = []

    @cacheable(return_type=FileType, check_output=True)
    def write(text):
        made.append(text)
        (folder / "out.txt").write_text(text)
        return str(folder / "out.txt")

    write("a")
    write("a")
    assert made == ["a"]
    (folder / "out.txt").write_text("spoilt")
    assert Path(write("a")).read_text() == "a"
    (folder / "out.txt").unlink()
    assert Path(write("a")).read_text() == "a"
    assert made == ["a"] * 3


SCALE = 2


def scaled(x):
    return x * SCALE


def test_what_others_change_counts_and_what_the_function_counts_does_not(monkeypatch):
    calls = []

    @cacheable
    def function(x):
        calls.append(x)
        return scaled(x)

    assert [function(1), function(1)] == [2, 2]
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert [function(1), function(1)] == [3, 3]
    assert calls == [1, 1]


def test_arguments_that_the_function_changes_are_the_callers_and_another_call():
    @cacheable
    def grow(items):
        items.append(len(items))
        return sum(items)

    mine = [1]
    assert [grow(mine), mine, grow([1, 1]), grow([1])] == [2, [1, 1], 4, 2]


def test_any_signature_is_called_as_it_is(folder):
    (folder / "a.txt").write_text("a")

    @cacheable(path=FileType, rest=FileType)
    def function(first, /, *rest, path, **more):
        return first, rest, path, more

    for text in ("a", "b"):
        (folder / "a.txt").write_text(text)
        assert function(["a.txt"], "a.txt", path="a.txt", deep={"k": "a.txt"}) == (
            ["a.txt"],
            ("a.txt",),
            "a.txt",
            {"deep": {"k": "a.txt"}},
        )


def test_plain_types_count_as_values_in_every_process():
    function, calls = counted(return_type=str, x=str, y=int, check_output=True)
    assert [function("a", 1), function("a", 1), len(calls)] == ["a", "a", 1]
    assert function.uncached("b") == "b"


def test_the_classes_have_the_originals_hashes(folder):
    assert hash(ValueType("a")) == hash(ValueType("a")) != hash(ValueType("b"))
    assert hash(ObjectType({1: "a", "b": 2})) == hash(ObjectType({1: "a", "b": 2}))
    assert hash(UtilityType(np.arange(3, dtype="int32"))) != hash(UtilityType(np.arange(3, dtype="int64")))
    with pytest.raises(ValueError, match="nothing to read"):
        hash(FileType("missing"))
    with pytest.raises(TypeError, match="has no value that lasts"):
        hash(ObjectType(object()))
    (folder / "file").write_text("a")
    kinds = [
        type(convert_to_type(value))
        for value in (1, b"a", [1], {"k": 1}, np.zeros(1), "x", "file", str(folder))
    ]
    assert kinds == [ValueType, ValueType, ObjectType, ObjectType, UtilityType, ValueType, FileType, DirType]


def test_a_wrong_call_is_the_functions_to_tell():
    function, _ = counted()
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        function(1, z=2)


def test_an_option_that_is_no_class_is_told():
    with pytest.raises(UsageError, match="x='file' is no class that says how it counts"):
        cacheable(x="file")


def test_flightlogs_own_variable_wins(folder, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_CACHE_DIR", str(folder / "ours"))
    function, _ = counted()
    function(1)
    assert sorted(path.name for path in folder.iterdir()) == ["ours"]


def test_lookups_are_in_the_run(folder):
    with flightlog.record("demo", runs_dir=folder / "runs", sample_interval_s=None) as run:
        work.solve(3)
        work.solve(3)
    assert [(event.task, event.result) for event in open_run(run.path).events("cache")] == [
        ("solve", "miss"),
        ("solve", "hit"),
    ]


def test_worker_processes_share_the_results(folder):
    (folder / "scalable.yaml").write_text(work.MANIFEST.replace("processes: false", "processes: true"))
    (folder / "data.txt").write_text("1\n2\n3\n")
    log = str(folder / "log.txt")
    Path(log).touch()
    os.environ["SCALABLE_PATH_SNIFFING"] = "0"  # for the log, which changes
    try:
        for _ in range(2):
            with ScalableSession.from_yaml(target="local", sample_interval_s=None) as client:
                assert client.submit(work.count_lines, "data.txt", log).result(timeout=60) == 3
    finally:
        del os.environ["SCALABLE_PATH_SNIFFING"]
    assert len(Path(log).read_text().splitlines()) == 1
    results = [
        event.result
        for path in (folder / ".scalable/runs").glob("run-*")
        for event in open_run(path).events("cache")
    ]
    assert sorted(results) == ["hit", "miss"]
