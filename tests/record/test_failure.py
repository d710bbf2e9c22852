from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.record.failure import FailureText, both_ends, describe
from flightlog.record.limits import RecordLimits


class Unprintable(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


class SolverDiverged(Exception):
    pass


def caught(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as raised:
        return raised


def solve(step: int) -> None:
    raise SolverDiverged(f"step {step} of /tmp/run-{step}/x.dat at 0x7f{step:04x} diverged")


def failing_with(step: int) -> FailureText:
    try:
        solve(step)
    except SolverDiverged as error:
        return describe(error)
    raise AssertionError


def failing_elsewhere(step: int) -> FailureText:
    try:
        solve(step)
    except SolverDiverged as error:
        return describe(error)
    raise AssertionError


def test_type_message_and_traceback_say_what_happened() -> None:
    found = describe(caught(ValueError("bad input")))
    assert (found.error_type, found.message) == ("ValueError", "bad input")
    assert found.traceback is not None
    assert found.traceback.startswith("Traceback (most recent call last):\n")
    assert found.traceback.endswith("ValueError: bad input\n")
    assert "in caught" in found.traceback


def test_a_type_of_the_users_is_named_with_its_module() -> None:
    assert describe(SolverDiverged("x")).error_type == f"{__name__}.SolverDiverged"


def test_an_error_that_was_never_raised_is_described_too() -> None:
    found = describe(ValueError("x"))
    assert (found.message, found.traceback) == ("x", "ValueError: x\n")


def test_causes_contexts_notes_and_groups_are_in_the_traceback() -> None:
    try:
        try:
            try:
                raise KeyError("first")
            except KeyError as cause:
                raise ValueError("second") from cause
        except ValueError:
            error = RuntimeError("third")
            error.add_note("seen on node-7")
            raise ExceptionGroup("both", [error, OSError("fourth")]) from None
    except ExceptionGroup as group:
        text = describe(group).traceback
    assert text is not None
    for part in ("third", "seen on node-7", "fourth"):
        assert part in text
    try:
        try:
            raise KeyError("first")
        except KeyError as cause:
            raise ValueError("second") from cause
    except ValueError as error2:
        text = describe(error2).traceback
    assert text is not None
    assert text.index("first") < text.index("direct cause") < text.index("second")


def test_a_raising_str_is_survived() -> None:
    found = describe(caught(Unprintable()))
    assert found.message == "<no message: its __str__ raised KeyError>"
    assert found.traceback is not None
    assert "Unprintable" in found.traceback


def test_message_and_traceback_are_redacted() -> None:
    found = describe(caught(ConnectionError("cannot reach postgres://bob:hunter2@db/x")))
    assert found.message == "cannot reach postgres://bob:[redacted]@db/x"
    assert "hunter2" not in (found.traceback or "").rpartition("ConnectionError:")[2]


def test_message_and_traceback_are_bounded_with_both_ends_kept() -> None:
    found = describe(caught(ValueError("start " + "x" * 1_000_000 + " end")))
    assert found.message.startswith("start xxx")
    assert found.message.endswith("characters]")
    assert len(found.message) < RecordLimits.max_message_characters + 50
    assert found.traceback is not None
    assert found.traceback.startswith("Traceback")
    assert found.traceback.endswith("xxx end\n")
    assert len(found.traceback) < RecordLimits.max_traceback_characters + 50


@given(st.text(max_size=400), st.integers(10, 100))
def test_what_is_cut_from_the_middle_is_counted(text: str, limit: int) -> None:
    found = both_ends(text, limit)
    assert len(found) <= limit + 50
    if len(text) <= limit:
        assert found == text


def test_half_of_a_private_key_does_not_survive_the_cut() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "c2VjcmV0\n" * 2000 + "-----END RSA PRIVATE KEY-----\nafter\n"
    assert "c2VjcmV0" not in both_ends("before\n" + key, 1000)


def test_lone_surrogates_in_a_message_can_be_encoded() -> None:
    found = describe(caught(ValueError("file \udcff")))
    assert found.message == "file \\udcff"
    assert (found.traceback or "").encode()


def test_the_same_cause_has_the_same_fingerprint_whatever_numbers_paths_and_addresses_it_names() -> None:
    assert failing_with(3).fingerprint == failing_with(417).fingerprint
    assert len(failing_with(3).fingerprint) == 16
    assert int(failing_with(3).fingerprint, 16) >= 0


def test_another_place_type_message_or_cause_has_another_fingerprint() -> None:
    def chained(cause: BaseException) -> BaseException:
        error = ValueError("x")
        error.__cause__ = cause
        return error

    found = [
        failing_with(3),
        failing_elsewhere(3),
        describe(ValueError("x")),
        describe(ValueError("y")),
        describe(TypeError("x")),
        describe(chained(KeyError())),
        describe(chained(OSError())),
    ]
    assert len({text.fingerprint for text in found}) == len(found)


def test_the_depth_of_a_recursion_does_not_change_the_fingerprint() -> None:
    def dig(depth: int) -> None:
        if depth:
            dig(depth - 1)
        raise ValueError("rock")

    def at_depth(depth: int) -> str:
        try:
            dig(depth)
        except ValueError as error:
            return describe(error).fingerprint
        raise AssertionError

    assert at_depth(1) == at_depth(50)


def test_a_recursion_error_is_described() -> None:
    def forever() -> None:
        forever()

    with pytest.raises(RecursionError) as raised:
        forever()
    assert describe(raised.value).error_type == "RecursionError"


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert describe(first).message == "a"


def test_the_exception_is_neither_changed_nor_kept_alive() -> None:
    class Local(Exception):
        pass

    error = caught(Local("x"))
    before = (error.__traceback__, error.__cause__, error.__context__, error.args, dict(vars(error)))
    describe(error)
    assert (error.__traceback__, error.__cause__, error.__context__, error.args, vars(error)) == before
    alive = weakref.ref(error)
    del error, before
    gc.collect()
    assert alive() is None
