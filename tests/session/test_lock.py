"""Locks: what a run was made of, and what differs from it now."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from builders.runs import at, make_run

from flightlog.core.errors import RunNotFound
from flightlog.record.environment import Environment, read_environment
from flightlog.session.lock import (
    Difference,
    Lock,
    LockedFunction,
    compare_locks,
    find_lock,
    lock_function,
    make_lock,
    relock,
    relock_function,
    source_in,
)
from flightlog.session.manifest import Manifest, parse_manifest
from flightlog.store import layout
from flightlog.store.documents import write_document

DIGEST = "sha256:" + "ab" * 32
TEXT = f"""\
version: 1
project: {{name: demo}}
components:
  a: {{image: "repo/model@{DIGEST}"}}
  b: {{image: "repo/model:latest"}}
  c: {{image: "${{IMAGE}}"}}
"""
CODE = '''\
import functools

def plain(x):
    """Doubles."""
    return 2 * x

class Box:
    def method(self):
        return 1

def outer():
    def inner():
        return 1
    return inner

@functools.lru_cache
def decorated(x):
    return x
'''


def module_of(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("model", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def environment(tmp_path: Path, **changes: object) -> Environment:
    found = read_environment(environ={}, argv=["x"], cwd=tmp_path, path=[])
    fields = {"python": "3.12.1", "packages": {"numpy": "2.0"}, "git_commit": None, "git_dirty": None}
    return msgspec.structs.replace(found, **{**fields, **changes})


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    (tmp_path / "model.py").write_text(CODE)
    return parse_manifest(TEXT, tmp_path / "flightlog.yaml")


def test_a_lock_holds_hashes_versions_commit_and_digests(tmp_path: Path, manifest: Manifest) -> None:
    model = module_of(tmp_path / "model.py")
    lock = make_lock(
        manifest,
        [model.plain, model.outer()],
        environment(tmp_path, git_commit="c" * 40, git_dirty=False),
        environ={"IMAGE": f"other@{DIGEST}"},
    )
    assert lock == Lock(
        manifest_sha256=manifest.sha256,
        python="3.12.1",
        packages={"numpy": "2.0"},
        git_commit="c" * 40,
        git_dirty=False,
        functions={
            "model.outer.<locals>.inner": LockedFunction(
                sha256=lock.functions["model.outer.<locals>.inner"].sha256, file="model.py"
            ),
            "model.plain": LockedFunction(sha256=lock.functions["model.plain"].sha256, file="model.py"),
        },
        images={"a": DIGEST, "c": DIGEST},
    )
    assert all(len(found.sha256 or "") == 64 for found in lock.functions.values())
    assert (
        relock(
            manifest,
            lock,
            environment(tmp_path, git_commit="c" * 40, git_dirty=False),
            environ={"IMAGE": f"other@{DIGEST}"},
        )
        == lock
    )


def test_wrapped_partial_and_bound_functions_are_locked_by_their_source(
    tmp_path: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = module_of(tmp_path / "model.py")
    monkeypatch.setitem(sys.modules, "model", model)  # a class knows its file through its module
    for function, qualname in [
        (functools.partial(model.plain, 1), "plain"),
        (model.decorated, "decorated"),
        (model.Box().method, "Box.method"),
        (model.Box, "Box"),
        (model.Box(), "Box"),
    ]:
        name, found = lock_function(function, tmp_path)
        assert name == f"model.{qualname}"
        assert relock_function(name, found, tmp_path) == found
        assert found.sha256 is not None
    assert (source_in(tmp_path / "model.py", "decorated") or "").startswith("@functools.lru_cache\n")


def test_code_without_a_file_is_locked_as_far_as_it_can_be(tmp_path: Path) -> None:
    scope: dict[str, object] = {"__name__": "typed"}
    exec("def f(): return 1", scope)
    assert lock_function(scope["f"], tmp_path) == ("typed.f", LockedFunction(sha256=None, file=None))
    assert lock_function(len, tmp_path) == ("builtins.len", LockedFunction(sha256=None, file=None))
    name, found = lock_function(lambda: 1, tmp_path)
    assert name.endswith("<lambda>")
    assert (len(found.sha256 or ""), found.file) == (64, None)


def test_every_difference_is_a_sentence(tmp_path: Path, manifest: Manifest) -> None:
    model = module_of(tmp_path / "model.py")
    functions = [model.plain, model.Box.method, model.outer, len]
    before = make_lock(
        manifest,
        functions,
        environment(
            tmp_path, git_commit="a" * 40, git_dirty=False, packages={"numpy": "2.0", "old": "1", "odd": None}
        ),
        environ={},
    )
    (tmp_path / "model.py").write_text(CODE.replace("2 * x", "3 * x").replace("def outer", "def other"))
    changed = parse_manifest(TEXT.replace(DIGEST, "sha256:" + "cd" * 32), tmp_path / "flightlog.yaml")
    after = relock(
        changed,
        before,
        environment(
            tmp_path,
            python="3.13.0",
            git_commit="b" * 40,
            git_dirty=True,
            packages={"numpy": "2.1", "new": "3", "odd": "1"},
        ),
        environ={},
    )
    assert [each.sentence for each in compare_locks(before, after)] == [
        f"the manifest changed: {manifest.sha256[:12]} then, {changed.sha256[:12]} now",
        "Python was 3.12.1 and is 3.13.0",
        "new 3 was not installed",
        "numpy was 2.0 and is 2.1",
        "old 1 is no longer installed",
        "the git commit was aaaaaaaaaaaa and is bbbbbbbbbbbb",
        "the git checkout had no uncommitted changes and has some now",
        "the function model.outer is no longer in model.py",
        "the function model.plain changed in model.py",
        f"the image of component a was {DIGEST} and is sha256:{'cd' * 32}",
    ]
    assert compare_locks(before, after)[1] == Difference(
        what="python", name="", before="3.12.1", after="3.13.0", sentence="Python was 3.12.1 and is 3.13.0"
    )


def test_what_is_unknown_is_not_called_different(tmp_path: Path, manifest: Manifest) -> None:
    known = make_lock(manifest, [], environment(tmp_path, git_commit="a" * 40, git_dirty=True), environ={})
    unknown = make_lock(manifest, [], environment(tmp_path, packages=None), environ={})
    assert compare_locks(known, known) == []
    assert compare_locks(known, unknown) == []


def test_functions_that_came_or_went_are_told_between_two_runs(tmp_path: Path, manifest: Manifest) -> None:
    model = module_of(tmp_path / "model.py")
    one = make_lock(manifest, [model.plain], environment(tmp_path), environ={})
    two = make_lock(manifest, [model.outer], environment(tmp_path), environ={})
    assert [each.sentence for each in compare_locks(one, two)] == [
        "the function model.outer was not part of it",
        "the function model.plain is no longer part of it",
    ]


def test_the_last_run_of_the_project_that_has_a_lock_is_found(tmp_path: Path, manifest: Manifest) -> None:
    lock = make_lock(manifest, [], environment(tmp_path), environ={})
    runs = tmp_path / "runs"
    first = make_run(runs, token="aaaaaaaa", start_time=at(1))
    make_run(runs, token="bbbbbbbb", start_time=at(2))
    other = make_run(runs, token="cccccccc", start_time=at(3), project="else")
    write_document(first / layout.LOCK, lock)
    write_document(other / layout.LOCK, lock)
    assert find_lock(None, runs, "demo") == (first, lock)
    assert find_lock("cccc", runs, "demo") == (other, lock)
    with pytest.raises(RunNotFound, match=r"has no lock to check against: manifest\.lock: No such file"):
        find_lock("bbbb", runs, "demo")
    with pytest.raises(RunNotFound, match=r"no run of 'nothing' in .* has a lock"):
        find_lock(None, runs, "nothing")
