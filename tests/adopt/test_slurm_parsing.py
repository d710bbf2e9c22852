"""`sacct --json`, as a real Slurm 22.05 wrote it, as newer ones write it, and as nobody should."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.core.errors import FlightlogError, UsageError
from flightlog.engines.slurm.accounting import (
    FINAL,
    SlurmJob,
    SlurmStep,
    Verdict,
    ask,
    parse_accounting,
    verdict,
    with_exit_codes,
)

RECORDED = Path(__file__).with_name("slurm-22.05.json")
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
EXIT_CODES = """\
9|2026-11-15T17:59:37|0:0|REQUEUED
3|2026-11-15T17:59:37|0:9|FAILED
4|2026-11-15T17:59:37|0:0|TIMEOUT
8|2026-11-15T17:59:37|1:0|FAILED
13|2026-11-15T17:59:37|1:0|FAILED
a line of something else
22|Unknown|0:0|CANCELLED by 0
"""


def recorded() -> dict[str, Any]:
    return json.loads(RECORDED.read_bytes())


def parsed(document: Any) -> list[SlurmJob]:
    return parse_accounting(json.dumps(document).encode(), "test")[0]


def as_newer(document: dict[str, Any]) -> dict[str, Any]:
    """The document in the shapes of 23.11 and later."""
    document = copy.deepcopy(document)
    for job in document["jobs"]:
        job["state"]["current"] = [job["state"]["current"]]
        job["array"]["task_id"] = number(job["array"]["task_id"])
        job["time"]["limit"] = number(job["time"]["limit"])
        job["exit_code"] = exit_code(job["exit_code"])
        for step in job["steps"]:
            step["state"] = [step["state"]]
            step["step"]["id"] = f"{job['job_id']}.{step['step']['id']}"
            step["time"]["start"] = number(step["time"]["start"])
            step["time"]["end"] = number(step["time"]["end"])
            step["exit_code"] = exit_code(step["exit_code"])
    return document


def number(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def exit_code(old: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": [old["status"]],
        "return_code": number(old["return_code"]),
        "signal": {"id": number(old.get("signal", {}).get("signal_id")), "name": ""},
    }


def test_a_real_document_is_read_whole():
    jobs, odd = parse_accounting(RECORDED.read_bytes(), "recorded")
    assert odd == 0
    assert [(job.job_id, job.state, job.exit_code, job.signal, job.killed_by) for job in jobs] == [
        ("9", "REQUEUED", None, None, None),
        ("3", "FAILED", None, "SIGKILL", None),
        ("4", "TIMEOUT", None, None, None),
        ("5", "CANCELLED", None, None, "ada"),
        ("6_4", "COMPLETED", 0, None, None),
        ("7", "FAILED", None, "SIGSEGV", None),
        ("8", "FAILED", None, None, None),
        ("9", "COMPLETED", 0, None, None),
        ("6_3", "FAILED", None, None, None),
        ("22", "CANCELLED", None, None, "ada"),
    ]


def test_every_figure_of_a_job_has_its_unit():
    job = next(job for job in parsed(recorded()) if job.job_id == "3")
    assert job == SlurmJob(
        raw_id="3",
        state="FAILED",
        cluster="flight",
        name="mem",
        user="ada",
        partition="debug",
        account="lab",
        qos="normal",
        nodes="n1",
        signal="SIGKILL",
        submit=1794765577.0,
        start=1794765577.0,
        end=1794765578.0,
        elapsed_s=1.0,
        walltime_s=600.0,
        cpus=1.0,
        memory_bytes=100 << 20,
        cpu_s=0.48,
        max_rss_bytes=344719360,
        steps=(
            SlurmStep(
                step_id="batch",
                name="batch",
                state="CANCELLED",
                nodes="n1",
                start=1794765577.0,
                end=1794765578.0,
                tasks=1,
                cpu_s=0.48,
                max_rss_bytes=344719360,
            ),
        ),
    )


def test_newer_versions_say_the_same_in_other_shapes():
    assert parsed(as_newer(recorded())) == parsed(recorded())


def test_a_job_that_never_left_the_queue_has_no_start():
    job = next(job for job in parsed(recorded()) if job.job_id == "22")
    assert (job.start, job.elapsed_s, job.nodes, job.end) == (None, None, None, 1794766760.0)


def test_unlimited_time_and_unset_numbers_are_unknown():
    document = recorded()
    document["jobs"] = document["jobs"][:1]
    job = document["jobs"][0]
    job["time"].update(limit={"set": True, "infinite": True, "number": 0}, end=0)
    job["tres"] = {"allocated": [{"type": "gres", "name": "gpu", "count": 2}, {"type": "cpu", "count": None}]}
    (found,) = parsed(document)
    assert (found.walltime_s, found.end, found.gpus, found.cpus, found.memory_bytes) == (
        None,
        None,
        2.0,
        None,
        None,
    )


def test_a_state_with_flags_is_the_state():
    document = recorded()
    document["jobs"] = document["jobs"][:1]
    document["jobs"][0]["state"] = {"current": ["COMPLETING", "OUT_OF_MEMORY"], "reason": "OutOfMemory"}
    (found,) = parsed(document)
    assert (found.state, found.reason, found.is_over) == ("OUT_OF_MEMORY", "OutOfMemory", True)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"jobs": {}}', b"\xff\xfe", b"JobID|State\n"])
def test_what_sacct_does_not_write_is_refused_with_a_word(data: bytes):
    with pytest.raises(UsageError, match="sacct --json"):
        parse_accounting(data, "jobs.json")


@given(st.lists(JSON))
def test_entries_of_any_shape_are_jobs_or_counted(entries: list[Any]):
    data = json.dumps({"jobs": entries}, allow_nan=False) if finite(entries) else '{"jobs": []}'
    jobs, odd = parse_accounting(data.encode(), "test")
    assert len(jobs) + odd == (len(entries) if finite(entries) else 0)


def finite(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


@given(st.data())
def test_a_damaged_part_costs_that_part_alone(data: st.DataObject):
    document = recorded()
    job = document["jobs"][data.draw(st.integers(0, len(document["jobs"]) - 1))]
    key = data.draw(st.sampled_from(sorted(job.keys() - {"job_id"})))
    before = parsed(document)
    job[key] = data.draw(JSON.filter(finite))
    after = parsed(document)
    assert [found.raw_id for found in after] == [found.raw_id for found in before]
    assert sum(one != other for one, other in zip(before, after, strict=True)) <= 1
    for found in after:
        assert found.state == found.state.upper()
        if found.state in FINAL:
            assert verdict(found).end in {"completed", "failed", "cancelled"}


def test_exit_codes_come_from_the_table_where_the_document_has_none():
    jobs = {(job.job_id, job.state): job for job in with_exit_codes(parsed(recorded()), EXIT_CODES)}
    assert {key: (job.exit_code, job.signal) for key, job in jobs.items() if job.exit_code != 0} == {
        ("9", "REQUEUED"): (None, None),
        ("3", "FAILED"): (None, "SIGKILL"),
        ("4", "TIMEOUT"): (None, None),
        ("5", "CANCELLED"): (None, None),
        ("7", "FAILED"): (None, "SIGSEGV"),
        ("8", "FAILED"): (1, None),
        ("6_3", "FAILED"): (1, None),
        ("22", "CANCELLED"): (None, None),
    }


@given(st.text())
def test_a_table_of_any_text_changes_nothing_it_does_not_name(table: str):
    jobs = parsed(recorded())
    assert [job.raw_id for job in with_exit_codes(jobs, table)] == [job.raw_id for job in jobs]


def job(state: str, **facts: Any) -> SlurmJob:
    return SlurmJob(raw_id="12", state=state, **{"start": 1.0, "end": 2.0, **facts})


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (job("COMPLETED"), Verdict("completed", None, "Slurm job 12 completed", False)),
        (
            job("FAILED", exit_code=3),
            Verdict("failed", "ExitCode", "Slurm job 12 ended with exit code 3", False),
        ),
        (
            job("FAILED", signal="SIGSEGV"),
            Verdict("failed", "SIGSEGV", "Slurm job 12 was ended by SIGSEGV", False),
        ),
        (
            job("OUT_OF_MEMORY", memory_bytes=1 << 30),
            Verdict(
                "failed", "OUT_OF_MEMORY", "Slurm job 12 was ended for its memory: it may use 1.0 GiB", True
            ),
        ),
        (
            job("FAILED", signal="SIGKILL", memory_bytes=1 << 30, max_rss_bytes=2 << 30),
            Verdict(
                "failed",
                "OUT_OF_MEMORY",
                "Slurm job 12 was ended for its memory: it was seen with 2.0 GiB and may use 1.0 GiB",
                True,
            ),
        ),
        (
            job("FAILED", signal="SIGKILL", memory_bytes=4 << 30, max_rss_bytes=2 << 30),
            Verdict("failed", "SIGKILL", "Slurm job 12 was ended by SIGKILL", False),
        ),
        *(
            (
                job("FAILED", exit_code=code, memory_bytes=1 << 30, max_rss_bytes=2 << 30),
                Verdict(
                    "failed",
                    "OUT_OF_MEMORY",
                    "Slurm job 12 was ended for its memory: it was seen with 2.0 GiB and may use 1.0 GiB",
                    True,
                ),
            )
            for code in (9, 137)
        ),
        (
            job("FAILED", exit_code=137, memory_bytes=1 << 30, max_rss_bytes=1 << 30),
            Verdict(
                "failed",
                "ExitCode",
                "Slurm job 12 ended with exit code 137; it was seen with 1.0 GiB and may use 1.0 GiB, which "
                "may be why",
                False,
            ),
        ),
        (
            job("FAILED", exit_code=9, memory_bytes=4 << 30, max_rss_bytes=2 << 30),
            Verdict("failed", "ExitCode", "Slurm job 12 ended with exit code 9", False),
        ),
        (
            job("FAILED", exit_code=1, memory_bytes=1 << 30, max_rss_bytes=2 << 30),
            Verdict("failed", "ExitCode", "Slurm job 12 ended with exit code 1", False),
        ),
        (
            job("TIMEOUT", walltime_s=7200.0),
            Verdict("failed", "TIMEOUT", "Slurm job 12 was ended at its time limit of 2h 00m", True),
        ),
        (
            job("PREEMPTED"),
            Verdict("failed", "PREEMPTED", "Slurm job 12 was ended for a job of higher priority", True),
        ),
        (
            job("NODE_FAIL", nodes="n[1-3]"),
            Verdict("failed", "NODE_FAIL", "Slurm job 12 lost a node among n[1-3]", True),
        ),
        (job("NODE_FAIL", nodes="n1"), Verdict("failed", "NODE_FAIL", "Slurm job 12 lost a node (n1)", True)),
        (job("NODE_FAIL"), Verdict("failed", "NODE_FAIL", "Slurm job 12 lost a node", True)),
        (job("DEADLINE"), Verdict("failed", "DEADLINE", "Slurm job 12 was ended by Slurm: DEADLINE", True)),
        (
            job("CANCELLED", killed_by="ada", start=None),
            Verdict("cancelled", "CANCELLED", "Slurm job 12 was cancelled by ada before it started", True),
        ),
    ],
)
def test_a_verdict_says_who_ended_the_job_and_why(ended: SlurmJob, expected: Verdict):
    assert verdict(ended) == expected


@pytest.mark.parametrize("job_id", ["", "12;rm", "--help", "12_", "12.batch", "٣"])
def test_what_is_no_job_id_never_reaches_sacct(job_id: str):
    with pytest.raises(UsageError, match="no Slurm job id"):
        ask([job_id], sacct=lambda words: pytest.fail(f"asked {words}"))


def test_sacct_is_asked_again_until_the_jobs_have_ended():
    running = recorded()
    running["jobs"] = [job for job in running["jobs"] if job["job_id"] == 4]
    ended = copy.deepcopy(running)
    running["jobs"][0]["state"]["current"] = "RUNNING"
    answers = iter([running, ended])
    asked: list[str] = []

    def sacct(words: Any) -> bytes:
        asked.append(words[0])
        return json.dumps(next(answers)).encode() if words[0] == "--json" else b""

    slept: list[float] = []
    (found,) = ask(["4"], sacct=sacct, patience_s=5, sleep=slept.append)
    assert (found.state, asked.count("--json"), len(slept)) == ("TIMEOUT", 2, 1)


def in_parts() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A job that ended as soon as it had begun, in the three ways a Slurm 22.05 tells it within some
    seconds."""
    whole = recorded()
    whole["jobs"] = [job for job in whole["jobs"] if job["job_id"] == 4]
    unused = copy.deepcopy(whole)
    for step in unused["jobs"][0]["steps"]:
        step["time"]["total"] = {"seconds": 0, "microseconds": 0}
        step["tres"]["requested"] = {"max": [], "min": [], "average": [], "total": []}
    ended = copy.deepcopy(unused)
    ended["jobs"][0] |= {"partition": "", "name": "allocation", "qos": None}
    ended["jobs"][0]["time"] |= {"limit": 0, "eligible": 0}
    return ended, unused, whole


def asked_at(age_s: float, answers: list[dict[str, Any]], patience_s: float) -> tuple[SlurmJob, float]:
    """The job as it was told in the end, to someone who asked so long after its end, and the seconds of
    waiting."""
    told, slept = iter(answers), [0.0]

    def sacct(words: Any) -> bytes:
        return json.dumps(next(told)).encode() if words[0] == "--json" else b""

    end = answers[0]["jobs"][0]["time"]["end"]
    (found,) = ask(
        ["4"], sacct=sacct, patience_s=patience_s, sleep=slept.append, clock=lambda: end + age_s + sum(slept)
    )
    return found, sum(slept)


def test_an_account_of_which_parts_are_missing_says_nothing_of_them():
    ended, unused, whole = (parsed(part)[0] for part in in_parts())
    assert (ended.name, ended.partition, ended.qos, ended.walltime_s) == (None, None, None, None)
    assert (ended.state, ended.end, ended.account) == (whole.state, whole.end, whole.account)
    assert (unused.cpu_s, unused.max_rss_bytes, unused.walltime_s) == (None, None, whole.walltime_s)
    assert [job.is_whole for job in (ended, unused, whole)] == [False, False, True]


@pytest.mark.parametrize("patience_s", [0.0, 5.0])
def test_sacct_is_asked_again_until_the_account_of_a_job_that_has_just_ended_is_whole(patience_s: float):
    ended, unused, whole = in_parts()
    assert asked_at(1.0, [ended, ended, unused, whole], patience_s) == (parsed(whole)[0], 1.5)


def test_parts_that_do_not_come_are_not_waited_for_without_end():
    ended, _, _ = in_parts()
    assert asked_at(1.0, [ended] * 30, 0.0) == (parsed(ended)[0], 10.0)


def test_parts_that_are_missing_of_a_job_that_ended_long_ago_are_not_waited_for():
    ended, _, _ = in_parts()
    assert asked_at(3600.0, [ended], 5.0) == (parsed(ended)[0], 0.0)


def test_a_machine_without_slurm_says_how_else_to_do_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FlightlogError, match=r"there is no `sacct` here.*--slurm-file"):
        ask(["12"])
