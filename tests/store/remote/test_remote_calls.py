from __future__ import annotations

import errno
import gc
import threading

import pytest

from flightlog.core.errors import RemoteError
from flightlog.store.remote.objects import Calls, remote_error

AT = "s3://bucket/runs"


class FromProvider(Exception):
    def __init__(self, text: str, **fields: object) -> None:
        super().__init__(text)
        self.__dict__.update(fields)


@pytest.mark.parametrize(
    ("error", "kind", "passing"),
    [
        (TimeoutError("no answer within 30 seconds"), "timeout", True),
        (ConnectionRefusedError("connection refused"), "refused", True),
        (FromProvider("Could not connect to the endpoint URL"), "refused", True),
        (FromProvider("An internal error", status_code=500), "server", True),
        (FromProvider("SlowDown", response={"ResponseMetadata": {"HTTPStatusCode": 503}}), "server", True),
        (FromProvider("Insufficient Storage", status_code=507), "full", True),
        (OSError(errno.ENOSPC, "No space left on device"), "full", True),
        (PermissionError("Access Denied"), "denied", False),
        (FromProvider("forbidden", status_code=403), "denied", False),
        (FromProvider("Unable to locate credentials"), "credentials", False),
        (FileNotFoundError("The specified bucket does not exist"), "missing", False),
        (FileNotFoundError("runs/x"), "gone", False),
        (ValueError("odd"), "other", True),
    ],
)
def test_what_a_client_raises_becomes_one_sentence_with_what_to_do(
    error: Exception, kind: str, passing: bool
) -> None:
    made = remote_error(error, AT)
    assert (made.kind, made.passing) == (kind, passing)
    assert str(made).startswith(f"{AT} ")
    assert "\n" not in str(made)


def test_the_cause_of_an_error_counts_as_well_as_the_error() -> None:
    error = FileNotFoundError("bucket/runs")
    error.__cause__ = FromProvider("NoSuchBucket")
    assert remote_error(error, AT).kind == "missing"


def test_a_call_that_never_ends_is_left_behind_and_the_next_one_is_made() -> None:
    calls, never = Calls(AT, timeout_s=0.01), threading.Event()
    with pytest.raises(RemoteError, match="does not answer") as caught:
        calls(never.wait)
    assert (caught.value.kind, calls.made) == ("timeout", 1)
    assert Calls(AT)(lambda: "answer") == "answer"
    calls.timeout_s = 30
    assert calls(lambda: "answer") == "answer"
    never.set()


def test_what_may_pass_is_tried_again_after_growing_pauses() -> None:
    pauses: list[float] = []
    calls = Calls(AT, attempts=4, pause_s=1.0, sleep=pauses.append)
    left = [ConnectionResetError("connection reset")] * 2

    def flaky() -> str:
        if left:
            raise left.pop()
        return "answer"

    assert calls(flaky) == "answer"
    assert calls.made == 3
    assert 0.5 <= pauses[0] <= 1.5 < 2 * 1.5
    assert 1.0 <= pauses[1] <= 3.0


@pytest.mark.parametrize("error", [PermissionError("Access Denied"), FileNotFoundError("x")])
def test_what_will_not_pass_is_not_tried_again(error: Exception) -> None:
    def refuse() -> None:
        raise error

    calls = Calls(AT, attempts=4, sleep=lambda _s: None)
    with pytest.raises(RemoteError):
        calls(refuse)
    assert calls.made == 1


def test_attempts_are_bounded() -> None:
    def refuse() -> None:
        raise ConnectionRefusedError("refused")

    calls = Calls(AT, attempts=3, sleep=lambda _s: None)
    with pytest.raises(RemoteError):
        calls(refuse)
    assert calls.made == 3


def test_the_thread_of_calls_ends_when_nobody_can_ask_any_more() -> None:
    def asked() -> threading.Thread:
        calls = Calls("s3://bucket")

        def refused() -> None:
            raise PermissionError(f"after {calls.made} calls")

        with pytest.raises(RemoteError):
            calls(refused)
        return calls(lambda: (calls.made, threading.current_thread()))[1]  # what is asked knows who asks

    thread = asked()
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()
