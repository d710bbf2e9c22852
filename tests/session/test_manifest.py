"""A manifest found, read and resolved."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.manifests import WHOLE

from flightlog.core.errors import FlightlogError, ManifestError, UsageError
from flightlog.session.manifest import load_manifest, parse_manifest, pick_target, slurm_here
from flightlog.session.schema import Cache, Component, Contents, Project, Rates, Target, Task

ENVIRON = {"PARTITION": "debug", "TOKEN": "hunter2"}


def manifest(text: str = WHOLE):
    return parse_manifest(text, Path("/somewhere/flightlog.yaml"))


def test_every_field_is_read_with_its_unit_and_the_targets_overlay() -> None:
    assert manifest().resolved(ENVIRON, "cluster") == Contents(
        version=1,
        project=Project(name="sir", default_storage="s3://bucket/here", local_cache=".cache"),
        targets={
            "cluster": Target(
                provider="slurm",
                overlay="big",
                cost=Rates(currency="EUR", per_cpu_hour=0.05, per_gb_hour=0.01),
                options={
                    "partition": "debug",
                    "walltime_s": 86400.0,
                    "memory_bytes": 32_000_000_000,
                    "max_workers": 100,
                },
            )
        },
        components={
            "model": Component(
                cpus=2.0,
                memory_bytes=64 * 2**30,
                gpus=0.5,
                walltime_s=None,
                image="model:1.10",
                runtime="apptainer",
                env={"OMP_NUM_THREADS": "4", "TOKEN": "hunter2", "COUNTRY": "NO", "EMPTY": "", "EXTRA": "$1"},
                mounts={"/data": "/mnt/data"},
                tags=("fast", "2026"),
                preload_script="setup.py",
            ),
            "plain": Component(),
        },
        tasks={
            "simulate": Task(
                component="model",
                cache=Cache(version="2", ttl_s=604800.0, ignore=("verbose",), store="/cache"),
                retries=2,
                timeout_s=600.0,
                outputs=("out.csv",),
            ),
            "plot": Task(cache=False),
            "keep": Task(cache=True),
        },
    )


def test_another_targets_overlay_and_variables_do_not_count() -> None:
    found = manifest().resolved({"TOKEN": "x", "CPUS": "8", "N": "3"}, "local")
    assert found.targets == {
        "local": Target(
            provider="local", options={"max_workers": 3, "processes": True, "threads_per_worker": 1}
        )
    }
    assert (found.components["model"].cpus, found.components["model"].memory_bytes) == (8.0, 16 * 2**30)
    assert found.components["model"].walltime_s == 5400.0


def test_the_text_is_kept_as_it_was_written() -> None:
    found = manifest()
    found.resolved(ENVIRON, "cluster")
    assert found.source == WHOLE
    assert found.for_target("cluster", ENVIRON).source == WHOLE


def test_unset_variables_are_an_error_with_their_line_when_they_are_used() -> None:
    with pytest.raises(ManifestError) as error:
        manifest().resolved({}, "cluster")
    assert str(error.value) == (
        "flightlog.yaml:11: targets.cluster.partition: the variable PARTITION is not set; set it, or write"
        " ${PARTITION:-default}\n"
        "flightlog.yaml:23: components.model.env.TOKEN: the variable TOKEN is not set; set it, or write"
        " ${TOKEN:-default}"
    )


def test_a_variable_in_a_typed_field_is_checked_by_what_it_holds() -> None:
    with pytest.raises(ManifestError) as error:
        manifest().resolved({**ENVIRON, "CPUS": "many"}, "cluster")
    assert error.value.problems == (
        "flightlog.yaml:17: components.model.cpus: '${CPUS:-2}' gives 'many', which is no number",
    )


def test_what_a_secret_variable_holds_is_not_in_the_message() -> None:
    text = "version: 1\nproject: {name: a}\ncomponents: {m: {cpus: '${API_TOKEN}'}}\n"
    with pytest.raises(ManifestError) as error:
        manifest(text).resolved({"API_TOKEN": "hunter2"})
    assert error.value.problems == ("flightlog.yaml:3: components.m.cpus: '${API_TOKEN}' is no number",)


def test_the_raw_view_keeps_variables_in_texts_and_expands_numbers_and_names() -> None:
    found = manifest().resolved({"CPUS": "8"}, "cluster", raw=True)
    assert found.project.default_storage == "s3://bucket/${SITE:-here}"
    assert found.targets["cluster"].options["partition"] == "${PARTITION}"
    assert found.components["model"].env["TOKEN"] == "${TOKEN}"
    assert found.components["model"].cpus == 8.0


def test_a_manifest_without_targets_runs_on_this_machine() -> None:
    found = manifest("version: 1\nproject: {name: a}\n")
    assert found.resolved({}).targets == {"local": Target(provider="local")}
    assert found.targets == ("local",)


def test_anchors_aliases_and_merge_keys_work() -> None:
    found = manifest(
        "version: 1\nproject: {name: a}\n"
        "components:\n  one: &one {cpus: 1, memory: 1G}\n  two: {<<: *one, cpus: 2}\n  three: *one\n"
    ).resolved({})
    assert found.components["two"] == Component(cpus=2.0, memory_bytes=2**30)
    assert found.components["three"] == found.components["one"]


def test_a_plugins_provider_takes_any_options(monkeypatch: pytest.MonkeyPatch) -> None:
    from flightlog.session.validation import Checker
    from flightlog.session.yaml_tree import read_tree

    text = (
        "version: 1\nproject: {name: a}\n"
        "targets: {p: {provider: moon, crew: 3, names: [a, '4'], rate: 1.5, ok: yes, key: '${K}'}}\n"
    )
    checker = Checker(read_tree(text, "f"), {"K": "v"}, providers=lambda: ["moon"])
    assert checker.contents().targets["p"].options == {
        "crew": 3,
        "names": ["a", "4"],
        "rate": 1.5,
        "ok": True,
        "key": "v",
    }
    assert checker.problems == []


# --- finding it ------------------------------------------------------------------------------------------


def test_the_nearest_manifest_above_is_found_and_named_from_here(tmp_path: Path) -> None:
    (tmp_path / "flightlog.yaml").write_text("version: 1\nproject: {name: a}\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    found = load_manifest(cwd=below)
    assert (found.path, found.name) == (tmp_path / "flightlog.yaml", "../../flightlog.yaml")
    assert load_manifest(cwd=tmp_path).name == "flightlog.yaml"


def test_the_search_ends_at_the_top_of_the_checkout_and_says_where_it_looked(tmp_path: Path) -> None:
    (tmp_path / "flightlog.yaml").write_text("version: 1\nproject: {name: a}\n")
    below = tmp_path / "repo" / "src"
    below.mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    with pytest.raises(UsageError) as error:
        load_manifest(cwd=below)
    assert str(error.value) == (
        f"there is no flightlog.yaml in {below} or above it, up to {tmp_path / 'repo'}; write one, or name it"
    )


def test_a_folder_stands_for_the_manifest_in_it(tmp_path: Path) -> None:
    (tmp_path / "flightlog.yaml").write_text("version: 1\nproject: {name: a}\n")
    assert load_manifest(tmp_path).path == tmp_path / "flightlog.yaml"


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_path_that_is_not_there_is_a_usage_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        load_manifest(tmp_path / name)


def test_bytes_that_are_not_utf8_are_a_problem_of_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "flightlog.yaml").write_bytes(b"version: 1 # \xff\n")
    with pytest.raises(ManifestError, match="is not UTF-8: byte 13 is 0xff"):
        load_manifest(tmp_path)


# --- targets ---------------------------------------------------------------------------------------------

TWO = "version: 1\nproject: {name: a}\ntargets: {a: {provider: dask}, b: {provider: slurm}}\n"


def test_a_target_is_picked_by_argument_then_variable_then_slurm_then_local_then_alone() -> None:
    whole, two = manifest(), manifest(TWO)
    assert pick_target(whole, "cluster", {"FLIGHTLOG_TARGET": "local"}, False) == "cluster"
    assert pick_target(whole, None, {"FLIGHTLOG_TARGET": " cluster "}, False) == "cluster"
    assert pick_target(whole, None, {}, True) == "cluster"
    assert pick_target(whole, None, {}, False) == "local"
    assert pick_target(two, None, {}, True) == "b"
    one = manifest("version: 1\nproject: {name: a}\ntargets: {x: {provider: ray}}\n")
    assert pick_target(one, None, {}, True) == "x"


def test_slurm_decides_only_where_one_target_is_for_it() -> None:
    both = manifest(
        "version: 1\nproject: {name: a}\ntargets:\n"
        "  a: {provider: slurm}\n  b: {provider: slurm}\n  local: {provider: local}\n"
    )
    assert pick_target(both, None, {}, True) == "local"


@pytest.mark.parametrize(
    ("argument", "environ", "message"),
    [
        (None, {}, "which target of flightlog.yaml? Name one, or set FLIGHTLOG_TARGET; the targets are a, b"),
        ("c", {}, "there is no target 'c' in flightlog.yaml; the targets are a, b"),
        (
            None,
            {"FLIGHTLOG_TARGET": "B"},
            "there is no target 'B', which FLIGHTLOG_TARGET names, in flightlog.yaml; did you mean 'b'?"
            " The targets are a, b",
        ),
    ],
)
def test_no_target_is_an_error_that_lists_them(argument: str | None, environ: dict, message: str) -> None:
    with pytest.raises(FlightlogError) as error:
        pick_target(manifest(TWO), argument, environ, False)
    assert str(error.value) == message


def test_slurm_is_here_inside_a_job_and_where_jobs_can_be_submitted(tmp_path: Path) -> None:
    assert slurm_here({"SLURM_JOB_ID": "7", "PATH": ""})
    assert not slurm_here({"PATH": str(tmp_path)})
    (tmp_path / "sbatch").write_text("#!/bin/sh\n")
    (tmp_path / "sbatch").chmod(0o755)
    assert slurm_here({"PATH": str(tmp_path)})
