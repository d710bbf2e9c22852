"""`flightlog compare`, through `main`: what it prints, where, and the exit code."""

from __future__ import annotations

import jsonschema
import msgspec
import pytest
from builders.compared_durations import closed_run, task_events
from builders.runs import at

import flightlog
from flightlog.analyze.compare.results import Comparison
from flightlog.cli.main import main


@pytest.fixture
def runs(tmp_path, monkeypatch):
    folder = tmp_path / "runs"
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(folder))
    monkeypatch.chdir(tmp_path)
    for number, factor in enumerate([1.0, 1.0, 1.5]):
        events = [e for i in range(20) for e in task_events("fit", i, i, 0.2 * factor * (1 + i % 3 / 50))]
        closed_run(
            folder,
            events,
            token=f"a000000{number}",
            start_time=at(number),
            duration_s=20.0 * factor,
            end_time=at(number + 20 * factor),
        )
    return folder


def test_without_arguments_it_compares_the_last_two_runs(runs, capsys):
    assert main(["compare"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("B took 50% longer (20.0s → 30.0s): `fit` is 1.50x slower (1.46 to 1.54)")
    assert err == ""


def test_json_is_the_whole_comparison_and_python_gives_the_same(runs, capsys):
    assert main(["compare", "a0000000", "a0000001", "--format", "json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=Comparison)
    assert found == flightlog.compare("a0000000", "a0000001")
    assert [change.verdict for change in found.durations] == ["no change"]


@pytest.mark.parametrize("conditions", [[], ["--fail-on", "wall>1%", "p95>10%"]])
def test_the_json_is_valid_by_its_own_schema(runs, capsys, conditions):
    main(["compare", "a0000000", "latest", *conditions, "--format", "json"])
    found = msgspec.json.decode(capsys.readouterr().out)
    assert main(["schema", "compare"]) == 0
    schema = msgspec.json.decode(capsys.readouterr().out)
    jsonschema.validate(found, schema)
    assert found.keys() - {"conditions"} == set(schema["$defs"]["Comparison"]["required"])


def test_a_task_with_other_arguments_is_not_called_slower_without_saying_so(tmp_path, capsys):
    for token, first, factor in (("aaaaaaaa", 0, 1.0), ("bbbbbbbb", 100, 1.5)):
        events = [
            event
            for i in range(20)
            for event in task_events("fit", first + i, i, 0.2 * factor * (1 + i % 3 / 50))
        ]
        closed_run(tmp_path, events, token=token, duration_s=20.0, end_time=at(20))
    asked = ["compare", "aaaaaaaa", "bbbbbbbb", "--runs-dir", str(tmp_path)]
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert "`fit` is 1.50x slower (1.46 to 1.54), with other arguments" in " ".join(
        out.split("\n\n")[0].split()
    )
    [row] = [line for line in out.splitlines() if line.startswith("  fit ")]
    assert row.endswith("name, other arguments")
    assert "fit had different arguments in B and A (none of the sets are in both): its ratio, and" in out
    assert main([*asked, "--fail-on", "duration>20%"]) == 1
    assert "a typical fit (with other arguments) rose by 50%" in capsys.readouterr().err
    assert main([*asked, "--format", "json"]) == 0
    [change] = msgspec.json.decode(capsys.readouterr().out)["durations"]
    assert (change["pairs"], change["shared_arguments"]) == (None, 0.0)


def test_conditions_may_follow_each_other_and_make_the_exit_code(runs, capsys):
    asked = ["compare", "a0000000", "latest", "--fail-on", "p95>10%", "failures>0", "duration:fit>20%"]
    assert main(asked) == 1
    out, err = capsys.readouterr()
    assert "Conditions: 1 of 3 failed" in out
    assert err == (
        "flightlog: unknown: p95>10%: p95 is unknown on one side at least, or 0 before\n"
        "flightlog: failed: duration:fit>20%: a typical fit rose by 50%, 204 ms → 306 ms\n"
    )
    assert main(["compare", "a0000000", "a0000001", "--fail-on", "duration>20%,failures>0"]) == 0


def test_conditions_stand_in_the_json_where_there_are_any(runs, capsys):
    assert main(["compare", "a0000000", "a0000001", "--fail-on", "wall>1%", "--format", "json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["conditions"] == [
        {"condition": "wall>1%", "state": "passed", "reasons": []}
    ]


def test_strict_lets_noise_excuse_nothing(runs):
    events = [e for i in range(20) for e in task_events("fit", i, i, 0.204 * (1 + i % 3 / 50))]
    closed_run(runs, events, token="b0000000", start_time=at(9), duration_s=20.0)
    asked = ["compare", "a0000000", "b0000000", "--fail-on", "duration>1%"]
    assert main(asked) == 0
    assert main([*asked, "--strict"]) == 1


def test_output_goes_to_a_file_and_nothing_to_standard_output(runs, tmp_path, capsys):
    file = tmp_path / "comparison.md"
    assert main(["compare", "--format", "md", "--output", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert file.read_text().startswith("# What changed\n\nB took 50% longer")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["a", "b", "c"],
            "two sides are compared, and these are 3: a, b, c; join runs of one side with commas",
        ),
        (["a0000000", "latest", "p95>10%"], "'p95>10%' is a condition: write it after --fail-on"),
        (["a0000000", "latest", "--fail-on", "p59>10%"], "perhaps 'p95'"),
        (["dmo:last5", "latest"], "is of project 'dmo'"),
        (["a0000000", "latest", "--fail-on", "duration:fitt>1%"], "no task or span 'fitt'"),
        (["--output", "nowhere/file"], "there is no folder nowhere"),
        (["--runs-dir", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_misuse_is_said_in_a_line_with_exit_code_2(runs, capsys, arguments, words):
    assert main(["compare", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1
