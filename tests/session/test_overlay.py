"""Overlays in files of their own, and the one that advice is written into."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from flightlog.analyze.advice.advise import Advised
from flightlog.analyze.advice.base import Advice
from flightlog.core.errors import ManifestError, UsageError
from flightlog.session.manifest import Manifest, load_manifest
from flightlog.session.overlay import pick_overlay, write_advised
from flightlog.session.schema import Cache
from flightlog.session.session import Session

TEXT = """\
version: 1
project: {name: demo}
targets:
  local: {provider: local, max_workers: 2}
  cluster: {provider: local, overlay: big}
components:
  model: {cpus: 4, memory: 16GB}
  "odd: name": {cpus: 1}
tasks:
  sim: {component: model}
overlays:
  big: {components: {model: {memory: 64GB}}}
  small: {components: {model: {memory: 1GB}}}
"""


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLIGHTLOG_OVERLAY", raising=False)
    (tmp_path / "flightlog.yaml").write_text(TEXT)
    return load_manifest()


def memory(manifest: Manifest, target: str = "local") -> int | None:
    return manifest.resolved({}, target).components["model"].memory_bytes


def test_without_a_pick_the_manifest_stays_as_it_is(manifest: Manifest) -> None:
    assert pick_overlay(manifest, "local", None, {}) is manifest


def test_a_file_is_laid_over_the_targets_own_overlay(manifest: Manifest, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("components: {model: {memory: 3GB}}\n")
    for overlay, environ in (
        ("mine.yaml", {}),
        (tmp_path / "mine.yaml", {}),
        (None, {"FLIGHTLOG_OVERLAY": "mine.yaml"}),
    ):
        picked = pick_overlay(manifest, "cluster", overlay, environ)
        assert (memory(picked, "cluster"), picked.overlays[0]) == (3 * 10**9, "big")
    assert memory(manifest, "cluster") == 64 * 10**9


def test_a_name_is_one_of_the_manifests_overlays(manifest: Manifest) -> None:
    assert memory(pick_overlay(manifest, "local", "small", {})) == 10**9
    assert memory(pick_overlay(manifest, "cluster", "big", {}), "cluster") == 64 * 10**9


def test_a_file_is_found_beside_the_manifest(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.yaml").write_text("components: {model: {memory: 3GB}}\n")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert memory(pick_overlay(manifest, "local", "mine.yaml", {})) == 3 * 10**9


def test_what_is_not_there_or_makes_no_sense_is_said(manifest: Manifest, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"there is no overlay 'gone\.yaml' in flightlog\.yaml, and no file of that name"
    ):
        pick_overlay(manifest, "local", "gone.yaml", {})
    with pytest.raises(UsageError, match="'gone', which FLIGHTLOG_OVERLAY names,"):
        pick_overlay(manifest, "local", None, {"FLIGHTLOG_OVERLAY": "gone"})
    (tmp_path / "odd.yaml").write_text("components:\n  model: {memory: lots}\n")
    with pytest.raises(ManifestError, match=r"odd\.yaml:2: .*'lots' is no size"):
        pick_overlay(manifest, "local", "odd.yaml", {})
    (tmp_path / "odd.yaml").write_text("version: 2\n")
    with pytest.raises(
        ManifestError, match=r"odd\.yaml:1: overlays\.odd\.yaml\.version: 'version' is no key of an overlay"
    ):
        pick_overlay(manifest, "local", "odd.yaml", {})
    (tmp_path / "odd.yaml").write_text("# tasks:\n\n")
    with pytest.raises(ManifestError, match=r"odd\.yaml: changes nothing; an overlay says what to change"):
        pick_overlay(manifest, "local", "odd.yaml", {})
    (tmp_path / "odd.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ManifestError, match="is not UTF-8"):
        pick_overlay(manifest, "local", "odd.yaml", {})


def test_a_session_takes_the_overlay_and_its_plan_names_it(manifest: Manifest, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("components: {model: {memory: 3GB}}\n")
    session = Session(manifest, target="local", overlay="mine.yaml", environ={})
    assert (memory(session.manifest), session.manifest.overlays) == (3 * 10**9, ("mine.yaml",))


def advised(**changes: str) -> Advised:
    paths = {path.replace("__", "."): value for path, value in changes.items()}
    advice = Advice(
        kind="resources", about="sim", sentence="sim: ask\nfor less", evidence={}, gain=None, changes=paths
    )
    return Advised(
        project="demo",
        target=None,
        confidence=0.95,
        runs=4,
        attempts=80,
        older_runs=0,
        recommendations=[],
        advice=[advice],
        changes=paths,
        problems=[],
    )


def test_advice_becomes_an_overlay_and_the_manifest_stays_as_it_was(
    manifest: Manifest, tmp_path: Path
) -> None:
    written = write_advised(
        manifest,
        advised(
            components__model__memory="6.4GB", components__model__cpus="2", tasks__other__timeout="1h 30m"
        ),
    )
    assert (written.path, written.left_out) == (Path("flightlog.advised.yaml"), [])
    assert (
        (tmp_path / "flightlog.advised.yaml").read_text().partition("\n")[2]
        == """\
# From 80 attempts in 4 runs of demo, so that 95 % of later attempts have enough.
# sim: ask for less
components:
  model:
    memory: 6.4GB  # was 16GB
    cpus: 2  # was 4
tasks:
  other:
    timeout: 1h 30m
"""
    )
    assert (tmp_path / "flightlog.yaml").read_text() == TEXT
    picked = pick_overlay(manifest, "local", "flightlog.advised.yaml", {})
    model = picked.resolved({}, "local").components["model"]
    assert (model.memory_bytes, model.cpus) == (6_400_000_000, 2.0)


def test_what_depends_on_what_no_record_tells_is_a_comment_that_is_right_without_its_mark(
    manifest: Manifest, tmp_path: Path
) -> None:
    found = advised(
        tasks__sim__cache="true",
        tasks__sim__timeout="1h",
        tasks__other__retries="2",
        components__model__cpus="2",
    )
    conditions = {"tasks.sim.cache": "it is pure", "tasks.other.retries": "it may be run twice"}
    written = write_advised(manifest, replace(found, conditions=conditions))
    assert (written.changes, written.commented) == (
        {"tasks.sim.timeout": "1h", "components.model.cpus": "2"},
        conditions,
    )
    body = (tmp_path / "flightlog.advised.yaml").read_text().partition("less\n")[2]
    assert (
        body
        == """\
tasks:
  sim:
#     cache: true  # only if it is pure
    timeout: 1h
#   other:
#     retries: 2  # only if it may be run twice
components:
  model:
    cpus: 2  # was 4
"""
    )
    before = pick_overlay(manifest, "local", written.path, {}).resolved({}, "local").tasks
    assert (before["sim"].timeout_s, before["sim"].cache, "other" in before) == (3600.0, None, False)
    (tmp_path / "mine.yaml").write_text(body.replace("\n# ", "\n"))
    after = pick_overlay(manifest, "local", "mine.yaml", {}).resolved({}, "local").tasks
    assert (after["sim"].timeout_s, after["sim"].cache, after["other"].retries) == (3600.0, True, 2)


def test_comments_alone_are_no_overlay(manifest: Manifest, tmp_path: Path) -> None:
    found = replace(advised(tasks__sim__cache="true"), conditions={"tasks.sim.cache": "it is pure"})
    written = write_advised(manifest, found)
    assert (written.path, written.commented) == (None, {"tasks.sim.cache": "it is pure"})
    assert list(tmp_path.glob("*.advised.yaml")) == []


def test_what_the_manifest_does_not_have_or_take_is_left_out_and_said(manifest: Manifest) -> None:
    written = write_advised(
        manifest,
        advised(
            components__gone__memory="1GB",
            components__model__memory="some",
            components__model__cpus="4",
            project__name="x",
            components__odd__memory="2GB",
        ),
    )
    assert written.path is None
    assert written.left_out == [
        "components.gone.memory was not set to 1GB: flightlog.yaml has no component 'gone'",
        "components.model.memory was not set to some: 'some' is no size: write it as '512MiB', '16G' (both "
        "in 1024s) or "
        "'16GB' (in 1000s)",
        "project.name was not set to x: an overlay sets what a component, a task or a target has",
        "components.odd.memory was not set to 2GB: flightlog.yaml has no component 'odd'",
    ]


def test_names_that_yaml_would_read_otherwise_are_quoted(manifest: Manifest) -> None:
    paths = {"components.odd: name.cpus": "2"}
    written = write_advised(
        manifest, advised(**{path.replace(".", "__"): value for path, value in paths.items()})
    )
    assert written.changes == paths
    picked = pick_overlay(manifest, "local", written.path, {})
    assert picked.resolved({}, "local").components["odd: name"].cpus == 2.0


def test_keys_below_a_name_with_dots_find_their_place(manifest: Manifest, tmp_path: Path) -> None:
    (tmp_path / "flightlog.yaml").write_text(
        TEXT.replace("  sim: {component: model}", "  my.sim: {cache: {ttl: 1d}}")
    )
    dotted = load_manifest()
    written = write_advised(dotted, advised(tasks__my__sim__cache__ttl="5d", tasks__a__b__retries="3"))
    assert written.left_out == []
    tasks = pick_overlay(dotted, "local", written.path, {}).resolved({}, "local").tasks
    assert (tasks["my.sim"].cache, tasks["a.b"].retries) == (Cache(ttl_s=5 * 86400.0), 3)


def test_its_own_file_is_replaced_and_any_other_is_left_alone(manifest: Manifest, tmp_path: Path) -> None:
    file = tmp_path / "flightlog.advised.yaml"
    write_advised(manifest, advised(components__model__memory="6.4GB"))
    write_advised(manifest, advised(components__model__memory="5GB"))
    assert "memory: 5GB" in file.read_text()
    changed = file.read_text().replace("5GB", "7GB")
    file.write_text(changed)
    with pytest.raises(UsageError, match="was changed since it was written, and was left alone"):
        write_advised(manifest, advised(components__model__memory="4GB"))
    assert file.read_text() == changed
    file.write_text("components: {}\n")
    with pytest.raises(UsageError, match="was not written by `flightlog advise --apply`, and was left alone"):
        write_advised(manifest, advised(components__model__memory="4GB"))
    assert file.read_text() == "components: {}\n"
