"""A text is taken apart into exceptions, their order, and how processes ended."""

from __future__ import annotations

import pytest

from flightlog.analyze.diagnosis.text import Line, ParsedText, Raised, prose, read_lines, read_text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[rank3]: ValueError: x", Line("ValueError: x", None)),
        ("[1,3]<stderr>:ValueError: x", Line("ValueError: x", None)),
        ("(train pid=812, ip=10.0.0.4) ValueError: x", Line("ValueError: x", None)),
        (
            "2025-01-02 03:04:05,678 - distributed.worker - ERROR - ValueError: x",
            Line("ValueError: x", "error"),
        ),
        ("2025-01-02T03:04:05.678901Z WARN  slow", Line("slow", "warn")),
        ("[2025-01-02 03:04:05] [INFO] ready", Line("ready", "info")),
        ("ERROR:root:ValueError: x", Line("ValueError: x", "error")),
        ("[pod/train-0/main] ValueError: x", Line("ValueError: x", None)),
        ("E       ValueError: x", Line("ValueError: x", None)),
        ("Jan  2 03:04:05 node1 kernel: Out of memory", Line("Out of memory", None)),
        ("\x1b[31mValueError\x1b[0m: x", Line("ValueError: x", None)),
        ("    indented = code()", Line("    indented = code()", None)),
        ("2025-01-02 03:04:05 ERROR 404: Not Found", Line("404: Not Found", "error")),
    ],
)
def test_what_others_put_before_a_line_is_taken_off(line: str, expected: Line) -> None:
    assert read_lines(line) == [expected]


def test_ranks_that_srun_puts_before_every_line_are_taken_off_and_a_lone_number_is_not() -> None:
    assert read_lines("0: ready\n13: ValueError: x") == [Line("ready", None), Line("ValueError: x", None)]
    assert read_lines("404: Not Found") == [Line("404: Not Found", None)]


def test_names_addresses_and_quoted_words_are_no_prose() -> None:
    text = (
        "cannot read '/data/timeout/a.nc' from https://x.org/oom for key 'cancelled' in out/killed.csv: "
        "I/O error"
    )
    assert prose(text) == "cannot read '' from <url> for key '' in <path>: I/O error"


def test_a_traceback_keeps_where_it_passed_and_what_stood_there() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/job/run.py", line 9, in main\n    step(3)\n    ~~~~^^^\n'
        '  File "/job/model.py", line 4, in step\n    return 1 / (n - 3)\n'
        "ZeroDivisionError: division by zero"
    )
    assert read_text(text).exceptions == (
        Raised(
            type="ZeroDivisionError",
            message="division by zero",
            frames=(
                ("/job/run.py", "main", "step(3)"),
                ("/job/model.py", "step", "return 1 / (n - 3)"),
            ),
        ),
    )


def test_a_message_may_have_several_lines() -> None:
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: first\n  '
        "second\nthird"
    )
    assert [one.message for one in read_text(text).exceptions] == ["first\n  second\nthird"]


def test_an_indented_traceback_ends_with_its_exception() -> None:
    text = (
        '    Traceback (most recent call last):\n      File "a.py", line 1, in f\n        x()\n    '
        "ValueError: bad"
    )
    assert [(one.type, one.message) for one in read_text(text).exceptions] == [("ValueError", "bad")]


def test_members_of_an_exception_group_are_read_and_the_group_only_reports_them() -> None:
    text = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "a.py", line 3, in <module>\n  |     main()\n'
        "  | ExceptionGroup: unhandled errors (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "a.py", line 8, in write\n    |     open(path)\n'
        "    | PermissionError: [Errno 13] Permission denied: 'x'\n"
        "    +------------------------------------"
    )
    found = read_text(text)
    assert [one.type for one in found.exceptions] == ["ExceptionGroup", "PermissionError"]
    assert found.root is found.exceptions[1]


def test_the_error_of_a_remote_task_is_named_by_its_own_type() -> None:
    found = read_text("ray.exceptions.RayTaskError(TypeError): ray::f() (pid=11, ip=10.0.0.1)")
    assert [one.type for one in found.exceptions] == ["TypeError"]


def test_an_exception_in_another_s_message_came_first() -> None:
    found = read_text("x.WriteException: java.io.IOException: No space left on device")
    assert [(one.type, one.link) for one in found.exceptions] == [
        ("java.io.IOException", "cause"),
        ("x.WriteException", None),
    ]
    assert found.root is found.exceptions[0]


def test_a_program_in_another_language_has_exceptions_too() -> None:
    thrown = read_text(
        "terminate called after throwing an instance of 'std::out_of_range'\n  what():  vector::at"
    )
    assert thrown.exceptions == (Raised(type="std::out_of_range", message="vector::at"),)
    julia = read_text("ERROR: LoadError: UndefVarError: `x` not defined")
    assert [one.type for one in julia.exceptions] == ["UndefVarError"]


def test_an_error_code_that_a_service_answered_with_is_read() -> None:
    raised = Raised(
        type="ClientError", message="An error occurred (SlowDown) when calling the PutObject operation"
    )
    assert raised.answer == "SlowDown"


@pytest.mark.parametrize(
    ("text", "codes", "signals"),
    [
        ("command terminated with exit code 137", (137,), ("SIGKILL",)),
        ("returned non-zero exit status 2.", (2,), ()),
        ("died with <Signals.SIGSEGV: 11>", (), ("SIGSEGV",)),
        ("exitcode  : -9 (pid: 14750)", (-9,), ("SIGKILL",)),
        ("ExitCode=0:15", (-15,), ("SIGTERM",)),
        ("exited on signal 6 (Aborted)", (), ("SIGABRT",)),
        ("Segmentation fault (core dumped)", (), ("SIGSEGV",)),
        ("Last State:     Terminated", (), ()),
        ("Sending process 5 closing signal SIGTERM", (), ()),
        ("exit code 0", (), ()),
    ],
)
def test_how_processes_ended_is_read(text: str, codes: tuple[int, ...], signals: tuple[str, ...]) -> None:
    found = read_text(text)
    assert (found.exit_codes, found.signals) == (codes, signals)


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        ("HTTP Error 404: Not Found", (404,)),
        ("503 Server Error: Service Unavailable for url", (503,)),
        ("status code: 429, request id: 1", (429,)),
        ("GET /x HTTP/1.1 502", (502,)),
        ("404: Not Found", (404,)),
        ("room 401 not found", ()),
        ("took 503 ms", ()),
        ("HTTP 200", ()),
    ],
)
def test_a_number_is_a_status_only_where_the_text_says_so(text: str, statuses: tuple[int, ...]) -> None:
    assert read_text(text).http == statuses


def test_no_text_is_an_empty_reading() -> None:
    assert read_text("") == ParsedText()


def test_a_message_below_an_empty_what_belongs_to_its_exception() -> None:
    text = (
        "terminate called after throwing an instance of 'lib::Error'\nwhat():\n(a.cpp:8) read\nno such "
        "key\n[n1:77] *** Signal"
    )
    assert read_text(text).exceptions == (Raised(type="lib::Error", message="(a.cpp:8) read\nno such key"),)


def test_a_sentence_that_goes_on_in_the_next_line_is_read_as_one_as_well() -> None:
    text = "Execution of replica 0 has failed: Out\nof memory while allocating\nStep 3 done"
    assert [passage.text for passage in read_text(text).passages] == [
        text,
        "Execution of replica 0 has failed: Out of memory while allocating",
    ]
