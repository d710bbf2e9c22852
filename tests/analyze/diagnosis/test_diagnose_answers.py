"""Why a run failed, from small runs built in code: damaged records, JSON, evidence and checks."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
from builders.failure_events import launched, lost, lost_task, only
from builders.runs import at, make_run
from builders.task_events import failed
from hypothesis import given
from hypothesis import strategies as st

import flightlog
from flightlog.analyze.diagnosis.diagnose import diagnosis_bytes
from flightlog.analyze.diagnosis.explain import size_text, time_text
from flightlog.analyze.diagnosis.results import RunDiagnosis
from flightlog.cli.main import main
from flightlog.core.units import parse_age, parse_size
from flightlog.events import (
    JobAccounted,
    JobStarted,
    Metric,
    ResourceRequest,
)


def test_a_damaged_record_is_diagnosed_as_far_as_it_goes(tmp_path):
    path = make_run(
        tmp_path, [failed("t", 1, 0.5, error_type="KeyError", error_message="'x'")], status="failed"
    )
    (path / "plan.json").write_text('{"components": ')
    with (path / "tasks.jsonl").open("ab") as out:
        out.write(b'{"event":"task_failed","ta')
    (path / "workers.jsonl").write_bytes(b"\x00\x00not a line\n{}\n[]\n")
    (path / "jobs.jsonl").write_bytes(b'{"event":"job_accounted"}\n')
    found = flightlog.diagnose(path)
    assert [cause.failure_class for cause in found.causes] == ["code_error"]
    assert [one.partition(",")[0] for one in found.problems] == [
        "plan.json cannot be read",
        "3 lines of the record are damaged",
    ]
    assert found.problems[-1].endswith(f"`flightlog verify {path}` says which.")
    (path / "run.json").unlink()
    assert [cause.failure_class for cause in flightlog.diagnose(path).causes] == ["code_error"]


def test_the_json_holds_the_whole_diagnosis_and_the_same_files_give_the_same_bytes(tmp_path):
    events = [
        failed("t", 1, 0.5, error_type="KeyError", error_message="'x'"),
        lost("w9", 2, "n1", "it went away"),
    ]
    path = make_run(tmp_path, events)
    made = diagnosis_bytes(flightlog.diagnose(path))
    assert made == diagnosis_bytes(flightlog.diagnose(path))
    assert diagnosis_bytes(msgspec.json.decode(made, type=RunDiagnosis)) == made


def every_kind(tmp_path: Path) -> Path:
    """A run with a cause of each kind that has checks of its own."""
    reason = "its process was killed by SIGKILL by the kernel's OOM killer: oom_kill of its cgroup rose"
    events = [
        launched("w1", "n1", 5),
        lost("w1", 3, "n1", reason, pid=5, signal="SIGKILL"),
        *lost_task("t[3]", 3, "w1", reason, component="it's", task="o'sim[3]"),
        failed(
            "u",
            4,
            1.0,
            task="slow",
            error_type="TimeoutError",
            error_message="slow ran over its timeout of 1 s",
        ),
        failed(
            "v",
            4,
            1.0,
            task="gpu",
            error_type="torch.OutOfMemoryError",
            error_message="CUDA out of memory. Tried to allocate 2 GiB",
        ),
        Metric(timestamp=at(2), name="loss", value=None, nonfinite="nan", step=3),
        JobAccounted(
            timestamp=at(5),
            job_id="7",
            state="TIMEOUT",
            attempt=1,
            walltime_s=60.0,
            elapsed_s=60.0,
            reason="at its time limit",
        ),
    ]
    return make_run(tmp_path / "my runs", events, status="failed", provider="slurm")


def test_every_line_of_evidence_stands_where_it_says(tmp_path):
    path = every_kind(tmp_path)
    checked = 0
    for cause in flightlog.diagnose(path).causes:
        for one in cause.evidence:
            if one.file is None or one.event is None:
                continue
            lines = [msgspec.json.decode(line) for line in (path / one.file).read_bytes().splitlines()]
            assert (one.event, one.time) in {(line["event"], line["timestamp"]) for line in lines}, one
            checked += 1
    assert checked >= 5


def test_the_commands_that_check_it_run(tmp_path, capsys):
    found = flightlog.diagnose(every_kind(tmp_path))
    commands = {command for cause in found.causes for command in cause.checks}
    assert {shlex.split(command)[1] for command in commands} >= {"sql", "report", "devices", "advise"}
    for command in sorted(commands):
        program, *arguments = shlex.split(command)
        if arguments[0] in {
            "advise",
            "devices",
        }:  # other folders, and a run with device memory: not what is tested
            continue
        assert (program, main(arguments)) == ("flightlog", 0), (command, capsys.readouterr().err)


@given(st.integers(1, 1 << 50))
def test_a_size_that_is_asked_for_is_enough_and_not_much_more(needed):
    size = parse_size(size_text(needed))
    assert needed <= size <= max(needed * 1.25 + (256 << 20), 256 << 20)


@given(st.floats(0.1, 1e7))
def test_a_time_that_is_asked_for_is_enough_and_not_much_more(needed):
    assert needed <= parse_age(time_text(needed)) <= needed * 1.21 + 1


def test_a_job_that_was_ended_for_its_memory_is_given_half_as_much_again_though_nobody_saw_how_much_it_had(
    tmp_path,
):
    said = "Slurm job 7 was ended for its memory: it may use 8.0 GiB"
    events = [
        ResourceRequest(task=None, component="sim", cpus=None, memory_bytes=8 << 30),
        JobStarted(timestamp=at(0), job_id="7", worker="w1"),
        launched("w1", "n1", 5),
        JobAccounted(
            timestamp=at(3), job_id="7", state="OUT_OF_MEMORY", attempt=1, memory_bytes=8 << 30, reason=said
        ),
        lost("w1", 3, "n1", said, pid=5),
        *lost_task("t", 3, "w1", said, component="sim"),
    ]
    cause = only(flightlog.diagnose(make_run(tmp_path, events, status="failed", provider="slurm")))
    assert cause.failure_class == "out_of_memory"
    assert "give it 12G" in cause.suggestions[0]
