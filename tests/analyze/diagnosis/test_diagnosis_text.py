"""A failure text alone is enough to name its class, where it names one at all."""

from __future__ import annotations

import pytest
from builders.failure_texts import REPORTS, TEXTS
from hypothesis import given
from hypothesis import strategies as st

import flightlog
from flightlog.analyze.diagnosis.base import Diagnosis
from flightlog.analyze.diagnosis.rules import load_rules
from flightlog.analyze.diagnosis.score import diagnose_text

CLASSES = {*load_rules(), "unknown"}
EVERY_TEXT = [
    pytest.param(name, text, id=f"{name}-{n}")
    for name, texts in TEXTS.items()
    for n, text in enumerate(texts)
]


def said(text: str, exception_type: str | None = None) -> str:
    return diagnose_text(text, exception_type).failure_class


@pytest.mark.parametrize(("failure_class", "text"), EVERY_TEXT)
def test_a_text_in_the_shape_that_programs_print_is_given_its_class(failure_class: str, text: str) -> None:
    assert said(text) == failure_class


def test_of_whole_reports_nearly_all_are_given_their_class_and_hardly_any_confidently_another() -> None:
    wrong = {}
    for report in REPORTS:
        found = diagnose_text(report["text"], report["exception_type"])
        if found.failure_class not in (report["label"], *report["also"]):
            wrong[report["id"]] = found.confidence
    assert len(wrong) <= 0.02 * len(REPORTS)
    assert sum(confidence >= 0.5 for confidence in wrong.values()) <= 0.01 * len(REPORTS)


def test_every_class_of_the_reference_has_a_rule_and_texts() -> None:
    assert {*TEXTS} == CLASSES
    assert len(CLASSES) == 22


@pytest.mark.parametrize(
    "text",
    [
        "room 401 not found",
        "Node 500 finished in 403 s; 404 tasks remain",
        "step 137 of 247: killed bacteria in sample 9",
        "wrote /data/timeout/out_of_memory/permission_denied.csv",
        "see https://example.org/connection-refused/oom-killed for the list",
        "finished reading 'cancelled' and 'preempted' orders",
    ],
)
def test_words_in_data_names_and_addresses_are_no_evidence(text: str) -> None:
    assert said(text) == "unknown"


@pytest.mark.parametrize("key", ["zoom", "timeout", "oom", "permission_denied", "cuda", "disk"])
def test_the_name_of_a_missing_key_says_nothing_of_the_cause(key: str) -> None:
    assert said(f"KeyError: '{key}'") == "code_error"


def test_a_file_named_after_a_failure_is_still_a_missing_file() -> None:
    text = "FileNotFoundError: [Errno 2] No such file or directory: '/logs/cuda_out_of_memory/timeout.txt'"
    assert said(text) == "missing_input"


def test_a_file_that_is_only_named_beside_something_not_found_is_not_missing() -> None:
    assert said("runtime.c:856 symbol not found in the scope table") != "missing_input"
    assert said("/data/a.nc: not found") == "missing_input"


def test_a_function_named_after_a_failure_is_only_a_name() -> None:
    assert said("TypeError: preempted() takes 1 positional argument but 2 were given") == "code_error"


def test_a_connection_that_times_out_is_network_and_a_call_that_does_is_timeout() -> None:
    assert said("TimeoutError: [Errno 110] Connection timed out") == "network"
    assert said("OSError: Timed out trying to connect to tcp://10.0.0.2:8786 after 30 s") == "network"
    assert said("TimeoutError: no reply from the solver in 30 s") == "timeout"


def test_the_batch_system_s_limit_is_no_call_s_timeout() -> None:
    assert said("JobID|State|ExitCode\n8812|TIMEOUT|0:0\n8812.batch|CANCELLED|0:15") == "time_limit"


def test_a_killed_process_without_a_reason_is_unknown_and_says_where_to_ask() -> None:
    found = diagnose_text("slurm_script: line 14: 40312 Killed                  python train.py")
    assert (found.failure_class, found.confidence < 0.5) == ("unknown", True)
    assert "dmesg" in found.suggestions[0]
    assert "out_of_memory" in found.also


def test_access_denied_by_a_store_is_credential_and_by_a_file_system_permission() -> None:
    assert said("PermissionError: Access Denied: s3://bucket/key") == "credential"
    assert said("PermissionError: [Errno 13] Permission denied: '/shared/out.h5'") == "permission"


def test_a_broken_pickle_is_data_and_an_object_that_cannot_be_pickled_is_serialization() -> None:
    assert said("_pickle.UnpicklingError: pickle data was truncated") == "data_error"
    assert said("TypeError: cannot pickle 'generator' object") == "serialization"


def test_an_uninstalled_package_is_an_import_error_and_a_wrong_version_a_conflict() -> None:
    assert said("ImportError: cannot import name 'x' from 'y'") == "import_error"
    assert (
        said("ImportError: fastlib>=2.1 is required for this, but found fastlib==1.9.")
        == "dependency_conflict"
    )


CHAINED = """Traceback (most recent call last):
  File "/job/load.py", line 4, in fetch
    sock.connect(address)
ConnectionRefusedError: [Errno 111] Connection refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/job/run.py", line 9, in <module>
    data = fetch()
ValueError: no data
"""


def test_the_cause_of_a_chain_is_diagnosed_and_not_its_last_line() -> None:
    found = diagnose_text(CHAINED, "ValueError")
    assert (found.failure_class, found.evidence[0]) == (
        "network",
        "ConnectionRefusedError: [Errno 111] Connection refused",
    )


def test_a_lookup_that_was_handled_is_not_the_cause_of_what_came_next() -> None:
    text = CHAINED.replace(
        "ConnectionRefusedError: [Errno 111] Connection refused", "KeyError: 'a.nc'"
    ).replace(
        "The above exception was the direct cause of the following exception",
        "During handling of the above exception, another exception occurred",
    )
    assert said(text.replace("ValueError: no data", "FileNotFoundError: 'a.nc'")) == "missing_input"


RANKS = """[rank1]: Traceback (most recent call last):
[rank1]:   File "/job/train.py", line 40, in <module>
[rank1]:     loss.backward()
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.
[rank0]: Traceback (most recent call last):
[rank0]:   File "/job/train.py", line 41, in <module>
[rank0]:     dist.all_reduce(total)
[rank0]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error
slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2025-01-01T00:00:00 ***
srun: error: n1: task 0: Terminated
"""


def test_the_rank_that_failed_first_explains_those_that_it_took_along() -> None:
    assert said(RANKS) == "gpu_out_of_memory"
    head, tail = RANKS.split("[rank0]: Traceback")
    assert said("[rank0]: Traceback" + tail.replace("slurmstepd", head + "slurmstepd")) == "gpu_out_of_memory"


LAUNCHER = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
train.py FAILED
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 57)
  traceback : Signal 15 (SIGTERM) received by PID 57
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 58)
"""


def test_a_rank_that_the_launcher_ended_tells_nothing_and_the_one_that_failed_first_does() -> None:
    assert said(LAUNCHER.format(code=1)) == "unknown"
    assert said(LAUNCHER.format(code=-9)) == "worker_lost"


def test_a_cancellation_at_a_limit_is_told_by_the_limit() -> None:
    cancelled = "The operation was canceled."
    assert said(cancelled) == "cancelled"
    assert said(f"exceeded the maximum execution time of 6 h\n{cancelled}") == "time_limit"


def test_a_crash_after_a_complaint_about_the_input_comes_of_the_input() -> None:
    text = "reader: invalid binary header, the file is truncated\nSegmentation fault (core dumped)"
    assert said(text) == "data_error"


def test_a_step_that_is_cleared_up_after_an_error_was_not_cancelled() -> None:
    text = (
        "NameError: name 'resluts' is not defined\nslurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT "
        "2025-01-01T00:00:00 ***"
    )
    assert said(text) == "code_error"


def test_a_worker_s_traceback_counts_and_not_the_frame_that_carried_it_home() -> None:
    text = '''multiprocessing.pool.RemoteTraceback:
"""
Traceback (most recent call last):
  File "/job/read.py", line 3, in parse
    return json.loads(line)
json.decoder.JSONDecodeError: Expecting ',' delimiter: line 1 column 12 (char 11)
"""

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/job/read.py", line 9, in <module>
    pool.map(parse, lines)
RuntimeError: a worker failed
'''
    assert said(text) == "data_error"


def test_an_exception_that_a_worker_logged_as_python_writes_it_is_read() -> None:
    text = (
        "distributed.worker - WARNING - Compute Failed\nKey: a-1\nException: 'OSError(28, \"No space left "
        "on device\")'"
    )
    assert said(text) == "disk_full"


def test_an_exception_that_refers_to_one_above_is_explained_by_that_one() -> None:
    text = (
        "ConnectionRefusedError: [Errno 111] Connection refused\nRuntimeError: start failed. See root "
        "cause above."
    )
    assert said(text) == "network"


def test_what_a_java_exception_was_caused_by_is_the_cause() -> None:
    text = (
        "org.apache.spark.SparkException: Job aborted due to stage failure\n"
        "\tat org.apache.spark.scheduler.DAGScheduler.fail(DAGScheduler.scala:2672)\n"
        "Caused by: java.io.IOException: No space left on device\n\t... 12 more"
    )
    assert said(text) == "disk_full"


def test_a_type_that_the_text_does_not_show_is_taken_from_the_caller() -> None:
    assert said("the answer did not come", "concurrent.futures.TimeoutError") == "timeout"


def test_a_type_that_nobody_listed_speaks_by_its_name() -> None:
    assert said("mysolver.errors.NewtonDivergedError: at t=0.3") == "numerical"
    assert said("fetcher.ArchiveConnectionError: gave up") == "network"


def test_a_warning_that_was_survived_weighs_less_than_the_error_that_was_not() -> None:
    text = (
        "2025-01-01 10:00:00,123 WARNING fetch: connection refused, trying again\n"
        "2025-01-01 10:00:05,123 INFO fetch: done\n"
        "AttributeError: 'NoneType' object has no attribute 'shape'"
    )
    assert said(text) == "code_error"


def test_two_causes_as_strong_as_each_other_share_their_confidence() -> None:
    alone = diagnose_text("OSError: [Errno 28] No space left on device")
    both = diagnose_text(
        "OSError: [Errno 28] No space left on device\nslurmstepd: error: Detected 1 oom_kill event in "
        "StepId=1.0"
    )
    assert alone.confidence >= 0.95
    assert both.confidence < 0.5
    assert {both.failure_class, *both.also} == {"disk_full", "out_of_memory"}


def test_suggestions_name_the_module_the_file_and_the_line() -> None:
    assert "`xarray`" in diagnose_text("ModuleNotFoundError: No module named 'xarray'").suggestions[0]
    assert (
        "'/data/a.nc'"
        in diagnose_text("FileNotFoundError: [Errno 2] No such file or directory: '/data/a.nc'").suggestions[
            0
        ]
    )
    code = (
        'Traceback (most recent call last):\n  File "/job/a.py", line 3, in step\n    x + None\nTypeError: '
        "unsupported"
    )
    assert diagnose_text(code).suggestions[0] == "Look at `/job/a.py`, in `step`: `x + None`."


def test_diagnose_text_is_offered_by_the_package() -> None:
    assert flightlog.diagnose_text is diagnose_text


def test_a_rank_that_says_why_it_ends_is_not_lost() -> None:
    report = "mpirun noticed that process rank 0 with PID 7 on node n1 exited on signal 9 (Killed)."
    assert said(report) == "worker_lost"
    assert said(f"CUDA error: an illegal memory access was encountered\n{report}") == "gpu_error"


def test_a_batch_system_that_clears_up_after_a_failed_task_has_cancelled_nothing() -> None:
    cancelled = "slurmstepd: error: *** JOB 524 ON n1 CANCELLED AT 2024-10-09T23:25:32 ***"
    assert said(cancelled) == "cancelled"
    assert said(f"{cancelled}\nsrun: error: n1: task 3: Exited with exit code 143") == "cancelled"
    assert said(f"srun: error: n1: task 3: Exited with exit code 1\n{cancelled}") == "unknown"


def test_what_cannot_be_resolved_is_a_host_only_where_nothing_else_is_named() -> None:
    assert said("unable to resolve example.org") == "network"
    assert said("unable to resolve dependency tree") == "dependency_conflict"
    assert said("Unable to resolve service for type 'Settings' while activating 'Startup'") != "network"


WORDS = st.sampled_from(
    'Traceback (most recent call last):|  File "a.py", line 1, in f|    x()|ValueError: bad|Caused by: '
    "java.io.IOException: x|"
    "The above exception was the direct cause of the following exception:|  + Exception Group Traceback "
    "(most recent call last):|"
    "  | ExceptionGroup: x (1 sub-exception)|  +-+---------------- 1 ----------------|terminate called "
    "after throwing an instance of 'X'|"
    '  what():  y|Killed|exit code 137|HTTP 503|\x1b[31mred\x1b[0m|\tat a.b.C(D.java)|"""|[rank0]: |E   |'
    "srun: error: x|".split("|")
)


@given(st.one_of(st.text(), st.lists(WORDS).map("\n".join)), st.none() | st.text())
def test_any_text_is_given_a_diagnosis(text: str, exception_type: str | None) -> None:
    found = diagnose_text(text, exception_type)
    assert isinstance(found, Diagnosis)
    assert found.failure_class in CLASSES
    assert 0 <= found.confidence <= 1
    assert found.failure_class != "unknown" or found.confidence < 0.5
    assert found.failure_class == "unknown" or (found.evidence and found.suggestions)
    assert found.problems == []


def test_a_long_text_is_read_at_its_ends() -> None:
    noise = "step 17 of 90 took 0.3 s, residual 1e-5\n" * 250_000
    assert said(f"{noise}MemoryError") == "out_of_memory"
    assert said(f"MemoryError\n{noise}") == "out_of_memory"
    assert said(noise[: len(noise) // 2] + "MemoryError\n" + noise) == "unknown"
