"""Alerts get where they are sent, once per cause and period, and never with a secret in the run."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from builders.alert_receivers import SECRET, Hook, hook, mail_server
from builders.runs import make_run
from builders.task_events import completed, failed, started, submitted

import flightlog
from flightlog.core.alerts import Alert, AlertEntry, address_mark
from flightlog.core.errors import UsageError
from flightlog.export.alerts import AlertSender, FiredAlerts, NotSent, actions_of, read_fired, send_test
from flightlog.store import layout

ALERT = Alert(
    rule="finished", cause="", message="over", at="", run_id="run-1", project="", status="", path=""
)


class World:
    """A clock that goes on when somebody sleeps; what was printed and said."""

    def __init__(self) -> None:
        self.time, self.start = 0.0, time.time()
        self.printed, self.said = [], []  # type: ignore[var-annotated]

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def sender(self, run: Path, *entries: AlertEntry, patience_s: float = 300.0) -> AlertSender:
        return AlertSender(
            run,
            lambda: entries,
            put=self.printed.append,
            note=self.said.append,
            clock=lambda: self.time,
            now=lambda: self.start + self.time,
            sleep=self.sleep,
            patience_s=patience_s,
        )


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook() as found:
        yield found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with two failures of one kind, and one of another."""
    events = [
        event
        for number in "123"
        for event in (submitted(number), started(number, 1.0), failed(number, float(number), 1.0))
    ]
    events += [submitted("4"), started("4", 1.0), failed("4", 5.0, 1.0, error_type="OSError")]
    events += [submitted("5"), started("5", 1.0), completed("5", 5.0, 1.0)]
    return make_run(tmp_path, events)


def test_a_webhook_gets_each_cause_once(run: Path, world: World, receiver: Hook) -> None:
    entry = AlertEntry(when=("failed", "finished"), webhook=receiver.address)
    world.sender(run, entry).follow()
    assert [(one["rule"], one["cause"]) for one in receiver.posted] == [
        ("failed", "sim: OSError"),
        ("failed", "sim: ValueError"),
        ("finished", ""),
    ]
    first = receiver.posted[0]
    assert first["message"] == "sim failed: OSError: bad seed (4 of 5 tasks failed)"
    assert (first["run_id"], first["path"], first["project"]) == (run.name, str(run), "demo")
    assert first["text"] == f"demo: failed\n{first['at']} {run.name}: {first['message']}"
    world.sender(run, entry).follow()  # another process, later
    assert receiver.requests == 3
    others = [AlertEntry(when=("finished",), webhook=f"{receiver.address}/{name}") for name in "ab"]
    world.sender(run, *others).follow()
    assert receiver.requests == 5  # of which the same is shown


def test_no_secret_is_written_into_the_run(run: Path, world: World, receiver: Hook) -> None:
    receiver.answers = [400]
    world.sender(run, AlertEntry(when=("failed",), webhook=receiver.address)).follow()
    port = receiver.address.split(":")[2].partition("/")[0]
    shown = f"webhook http://127.0.0.1:{port}/[redacted] ({address_mark(receiver.address)})"
    assert {(one.to, one.problem) for one in read_fired(run)} == {
        (shown, "the server answered 400"),
        (shown, None),
    }
    assert world.said == [f"an alert could not be sent to {shown}: the server answered 400"]
    texts = [file.read_bytes() for file in run.rglob("*") if file.is_file()]
    assert not any(SECRET.encode() in text for text in texts)


def test_an_alert_comes_again_after_its_period_if_there_is_more_of_it(
    tmp_path: Path, world: World, receiver: Hook
) -> None:
    with flightlog.record("train", runs_dir=tmp_path, sample_interval_s=None) as run:
        sender = world.sender(
            run.path, AlertEntry(when=("loss is NaN",), every="10m", webhook=receiver.address)
        )

        def posted(*values: float, after_s: float) -> int:
            world.time += after_s
            for value in values:
                run.metric("loss", value)
            run.recorder.files.flush()
            assert sender.look() is False
            sender.finish()
            return receiver.requests

        assert posted(1.0, after_s=0) == 0
        assert posted(float("nan"), after_s=1) == 1
        assert posted(float("nan"), after_s=1) == 1
        assert posted(after_s=601) == 2  # of the value that came in the period
        assert posted(1.0, after_s=601) == 2
        assert posted(float("nan"), after_s=1) == 3


def test_what_may_pass_is_tried_again_and_what_may_not_is_not(
    run: Path, world: World, receiver: Hook
) -> None:
    receiver.answers = [503, 429, 500]
    sender = world.sender(run, AlertEntry(when=("finished",), webhook=receiver.address))
    sender.follow()
    assert (len(receiver.posted), receiver.requests, sender.failed, world.said) == (1, 4, False, [])
    assert world.time >= 7  # 1, 2 and 4 seconds
    (run / layout.FOLLOWERS / "alerts.jsonl").unlink()
    receiver.answers = [404]
    sender = world.sender(run, AlertEntry(when=("finished",), webhook=receiver.address))
    sender.follow()
    assert (receiver.requests, sender.failed) == (5, True)


def test_a_server_that_is_not_there_is_given_up_in_the_end(run: Path, world: World) -> None:
    with hook() as gone:
        address = gone.address
    sender = world.sender(run, AlertEntry(when=("finished", "failed"), webhook=address), patience_s=30.0)
    sender.follow()
    assert sender.failed
    [said] = world.said
    assert said.startswith("an alert could not be sent to webhook http://127.0.0.1:")
    assert "Connection refused" in said
    assert SECRET not in said


def test_mail_is_sent_by_apprise(run: Path, world: World) -> None:
    with mail_server() as server:
        sender = world.sender(run, AlertEntry(when=("finished",), notify=(server.address,)))
        sender.follow()
        assert (world.said, len(server.mails)) == ([], 1)
        assert server.mails[0]["Subject"] == "demo: finished"
        assert server.mails[0]["To"] == "you@example.org"
        assert "the run completed after 10.0s; 5 tasks, 4 failed" in server.text()
    assert [(one.to, one.problem) for one in read_fired(run)] == [
        (f"notify mailto://[redacted] ({address_mark(server.address)})", None)
    ]


def test_a_mail_server_that_is_gone_is_said_without_its_password(run: Path, world: World) -> None:
    with mail_server() as server:
        pass
    address = server.address.replace("mailto://", "mailto://user:hunter2-secret@")
    sender = world.sender(run, AlertEntry(when=("finished",), notify=(address,)), patience_s=1.0)
    sender.follow()
    assert sender.failed
    assert world.said[0].startswith("an alert could not be sent to notify mailto://[redacted] (")
    assert " - WARNING - " not in world.said[0]
    assert not any("hunter2" in text for text in [*world.said, *map(str, read_fired(run))])


def test_a_command_gets_the_alert_as_json_and_as_variables(run: Path, world: World, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    program = (
        "import json, os, sys; alert = json.load(sys.stdin); "
        "alert['variables'] = {k: v for k, v in os.environ.items() if k.startswith('FLIGHTLOG_ALERT_')}; "
        "open(sys.argv[1], 'w').write(json.dumps(alert))"
    )
    command = (sys.executable, "-c", program, str(out))
    world.sender(run, AlertEntry(when=("finished",), command=command)).follow()
    alert = json.loads(out.read_text())
    variables = alert.pop("variables")
    del alert["values"]
    assert variables == {f"FLIGHTLOG_ALERT_{name.upper()}": value for name, value in alert.items()}


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("/no/such/program",), "No such file or directory"),
        (
            (sys.executable, "-c", "import sys; sys.exit('password=hunter2')"),
            "exit code 1: password=[redacted]",
        ),
        ((sys.executable, "-c", "pass"), None),
    ],
)
def test_a_command_that_fails_is_said(
    run: Path, world: World, command: tuple[str, ...], why: str | None
) -> None:
    sender = world.sender(run, AlertEntry(when=("finished",), command=command))
    sender.follow()
    assert sender.failed == (why is not None)
    assert why is None or why in world.said[0]


def test_a_command_that_hangs_is_ended(run: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flightlog.export.alerts.SendingLimits.send_timeout_s", 0.3)
    sender = world.sender(run, AlertEntry(when=("finished",), command=("sh", "-c", "sleep 600 & sleep 600")))
    begun = time.monotonic()
    sender.follow()
    assert time.monotonic() - begun < 60
    assert world.said[0].endswith("it took more than 0.3 s")


def test_a_function_is_called_wherever_it_stands(
    run: Path, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_alerts_x.py").write_text(
        "told = []\ndef tell(alert): told.append(alert.message)\ndef fail(alert): raise ValueError('no')\n"
    )
    entry = AlertEntry(when=("finished",), python="my_alerts_x:tell", folder=str(tmp_path))
    world.sender(run, entry).follow()
    assert sys.modules["my_alerts_x"].told == ["the run completed after 10.0s; 5 tasks, 4 failed"]
    sender = world.sender(run, AlertEntry(when=("finished",), python="my_alerts_x:fail"))
    sender.follow()
    assert world.said == ["an alert could not be sent to function my_alerts_x:fail: ValueError: no"]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (
            AlertEntry(when=(), webhook="ftp://host/s3cret"),
            "ftp://[redacted] is no webhook: write http://HOST/…",
        ),
        (
            AlertEntry(when=(), webhook="http://host/s3cret and more"),
            "http://host/[redacted] is no webhook",
        ),
        (AlertEntry(when=(), webhook="http://host:80x/s3cret"), "[redacted] is no webhook"),
        (AlertEntry(when=(), webhook="http:///s3cret"), "is no webhook"),
        (
            AlertEntry(when=(), notify=("nonsense://s3cret",)),
            "nonsense://[redacted] is no address that Apprise",
        ),
        (AlertEntry(when=(), python="no_such_module:tell"), "'no_such_module:tell' cannot be imported"),
    ],
)
def test_what_can_never_be_done_is_refused(entry: AlertEntry, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        actions_of(entry, print)
    assert why in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_blanks_around_a_rule_do_not_matter(run: Path, world: World, receiver: Hook) -> None:
    rules = ("finished ", "\n SELECT 1 AS x\n")
    world.sender(run, AlertEntry(when=rules, webhook=receiver.address)).follow()
    assert sorted(one["rule"] for one in receiver.posted) == ["SELECT 1 AS x", "finished"]


def test_an_answer_that_is_no_http_is_said_and_other_alerts_are_sent(
    run: Path, world: World, receiver: Hook
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk_nonsense() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1)
                connection.sendall(b"s3cret nonsense\r\n")
                while connection.recv(1 << 16):
                    pass

        thread = threading.Thread(target=talk_nonsense)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}/s3cret"
        entries = [AlertEntry(when=("finished",), webhook=one) for one in (address, receiver.address)]
        sender = world.sender(run, *entries, patience_s=0.5)
        sender.follow()
        thread.join()
    assert (sender.failed, len(receiver.posted), len(world.said)) == (True, 1, 1)
    assert world.said[0].endswith(": [redacted] nonsense")


def test_an_entry_that_cannot_be_used_does_not_keep_others_from_it(
    run: Path, world: World, receiver: Hook
) -> None:
    entries = [AlertEntry(when=("finished",), webhook=one) for one in ("http://h:80x/", receiver.address)]
    sender = world.sender(run, *entries)
    sender.follow()
    assert (sender.failed, len(receiver.posted)) == (True, 1)
    assert world.said == ["[redacted] is no webhook: write http://HOST/… or https://HOST/…"]


def test_what_could_not_be_sent_is_sent_by_the_next_call(run: Path, world: World, receiver: Hook) -> None:
    receiver.answers = [404]
    entry = AlertEntry(when=("finished",), webhook=receiver.address)
    failed = []
    for _ in range(3):
        sender = world.sender(run, entry)
        sender.follow()
        failed.append(sender.failed)
    assert (failed, receiver.requests, len(receiver.posted)) == ([True, False, False], 2, 1)


def test_actions_that_look_alike_are_all_done(
    run: Path, world: World, receiver: Hook, tmp_path: Path
) -> None:
    webhooks = [f"{receiver.address}?key={key}" for key in "ab"]
    program = f"{'#' * 300}\nimport sys; open(sys.argv[1], 'w')"
    commands = [(sys.executable, "-c", program, str(tmp_path / name)) for name in "cd"]
    entries = [AlertEntry(when=("finished",), webhook=one) for one in webhooks]
    entries += [AlertEntry(when=("finished",), command=one) for one in commands]
    for _ in range(2):
        world.sender(run, *entries).follow()
    assert len(receiver.posted) == 2
    assert all((tmp_path / name).exists() for name in "cd")
    fired = read_fired(run)
    assert (len(fired), len({one.key for one in fired})) == (4, 4)
    assert (run / layout.FOLLOWERS / layout.ALERTS_KEY).stat().st_mode & 0o077 == 0


def test_several_processes_send_an_alert_once(run: Path, world: World, receiver: Hook) -> None:
    entry = AlertEntry(when=("finished", "failed"), webhook=receiver.address)
    senders = [world.sender(run, entry) for _ in range(4)]  # none of them has sent anything yet
    threads = [threading.Thread(target=sender.follow) for sender in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (receiver.requests, len(receiver.posted), world.said) == (3, 3, [])
    assert len(read_fired(run)) == 3
    assert list((run / layout.FOLLOWERS).glob("*.lock")) == []


def test_an_alert_that_cannot_be_written_down_is_said_and_the_next_one_is_sent(
    run: Path, world: World, receiver: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = [UnicodeEncodeError("utf-8", "x", 0, 1, "surrogates not allowed")]
    write = FiredAlerts.write

    def failing(*args: object) -> None:
        if problems:
            raise problems.pop()
        write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(FiredAlerts, "write", failing)
    world.sender(run, AlertEntry(when=("finished", "failed"), webhook=receiver.address)).follow()
    assert (len(receiver.posted), len(world.said), len(read_fired(run))) == (3, 1, 2)


def test_a_redirect_is_not_taken_for_a_delivery(run: Path, world: World, receiver: Hook) -> None:
    receiver.answers = [302]
    world.sender(run, AlertEntry(when=("finished",), webhook=receiver.address)).follow()
    assert (receiver.requests, receiver.posted) == (1, [])
    assert world.said[0].endswith(": the server answered 302, a redirect, which is not followed")


FUNCTIONS = """
import sys, threading
go_on = threading.Event()
def wait(alert): go_on.wait(600)
def leave(alert): sys.exit(3)
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module with functions that do not do what they should."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "odd_alerts_x.py").write_text(FUNCTIONS)
    yield str(tmp_path)
    if module := sys.modules.pop("odd_alerts_x", None):
        module.go_on.set()


def test_a_function_that_never_ends_is_given_up(
    run: Path, world: World, functions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flightlog.export.alerts.SendingLimits.deadline_s", 0.3)
    world.sender(run, AlertEntry(when=("finished",), python="odd_alerts_x:wait", folder=functions)).follow()
    assert world.said[0].endswith(": it took more than 0.3 s")


def test_a_function_that_exits_is_said(run: Path, world: World, functions: str) -> None:
    sender = world.sender(run, AlertEntry(when=("finished",), python="odd_alerts_x:leave", folder=functions))
    sender.follow()
    assert sender.failed
    assert world.said[0].endswith(": SystemExit: 3")


def test_a_receiver_that_hangs_delays_no_other(
    run: Path, world: World, receiver: Hook, functions: str
) -> None:
    hanging = AlertEntry(when=("finished",), python="odd_alerts_x:wait", folder=functions)
    sender = world.sender(run, hanging, AlertEntry(when=("finished",), webhook=receiver.address))
    follower = threading.Thread(target=sender.follow)
    follower.start()
    eventually(lambda: receiver.posted)
    sys.modules["odd_alerts_x"].go_on.set()
    follower.join()
    assert world.said == []


def test_a_message_with_control_characters_gets_to_a_command(tmp_path: Path, world: World) -> None:
    error = failed("1", 1.0, 1.0, error_message="bad\0seed")
    run = make_run(tmp_path, [submitted("1"), started("1", 1.0), error])
    out = tmp_path / "out"
    program = "import os, sys; open(sys.argv[1], 'w').write(os.environ['FLIGHTLOG_ALERT_MESSAGE'])"
    entry = AlertEntry(when=("failed",), command=(sys.executable, "-c", program, str(out)))
    world.sender(run, entry).follow()
    assert world.said == []
    assert "bad\\x00seed" in out.read_text()


def test_addresses_in_a_command_are_not_written_down(run: Path, world: World) -> None:
    command = ("false", "https://example.org/hook/s3cret", "--to=tgram://12345:s3cret/777")
    world.sender(run, AlertEntry(when=("finished",), command=command)).follow()
    [fired] = read_fired(run)
    assert fired.to == "command false https://example.org/[redacted] --to=[redacted]"
    program = "import sys; sys.exit('no route to https://example.org/hook/s3cret')"
    with pytest.raises(NotSent) as why:
        actions_of(AlertEntry(when=(), command=(sys.executable, "-c", program)), print)[0].send(ALERT)
    assert str(why.value) == "exit code 1: no route to https://example.org/[redacted]"


def test_a_run_is_followed_to_its_end(tmp_path: Path, receiver: Hook) -> None:
    """Beside a run that really runs: what happens while it does comes while it does."""
    said: list[str] = []
    with flightlog.record("train", runs_dir=tmp_path, sample_interval_s=None) as run:
        entry = AlertEntry(when=("finished", "loss > 3"), webhook=receiver.address)
        sender = AlertSender(run.path, lambda: [entry], put=print, note=said.append)
        follower = threading.Thread(target=sender.follow)
        follower.start()
        run.metric("loss", 5.0, step=3)
        eventually(lambda: len(receiver.posted) == 1)
        assert receiver.posted[0]["message"] == "loss > 3: 5 at step 3"
        assert receiver.posted[0]["status"] == "running"
    follower.join(60)
    assert (not follower.is_alive(), said) == (True, [])
    assert [one["rule"] for one in receiver.posted] == ["loss > 3", "finished"]


def test_looking_takes_a_fifth_of_a_core_at_most(tmp_path: Path, world: World) -> None:
    looks: list[float] = []

    def expensive() -> float:
        """Each look takes two seconds of CPU time."""
        looks.append(world.time)
        return len(looks) // 2 * 2.0

    recording = flightlog.record("train", runs_dir=tmp_path, sample_interval_s=None)
    with recording as run:

        def sleep(seconds: float) -> None:
            world.sleep(seconds)
            if world.time > 60:
                recording.__exit__(None, None, None)

        sender = AlertSender(
            run.path,
            lambda: [AlertEntry(when=("failed",))],
            put=print,
            note=print,
            clock=lambda: world.time,
            sleep=sleep,
            cpu=expensive,
        )
        sender.follow()
    starts = looks[::2]
    assert all(later - before >= 10 for before, later in pairwise(starts[:-1]))
    assert len(starts) >= 5


def test_a_run_that_cannot_be_written_to_is_watched_all_the_same(
    run: Path, world: World, receiver: Hook
) -> None:
    (run / layout.FOLLOWERS).write_text("a file, where a folder should be")
    world.sender(run, AlertEntry(when=("finished",), webhook=receiver.address)).follow()
    assert len(receiver.posted) == 1
    assert world.said == ["the alert could not be noted in the run: File exists"]


def test_a_test_goes_everywhere_and_says_what_is_wrong(receiver: Hook) -> None:
    receiver.answers = [500]
    entry = AlertEntry(when=("failed",), webhook=receiver.address, command=("true",))
    problems = send_test([entry], Path("run-1"), print)
    assert [problem.partition(": the")[2] for problem in problems] == [" server answered 500"]
    assert send_test([entry], Path("run-1"), print) == []
    assert receiver.posted[0]["message"] == "this is a test: no rule holds"


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_entries_that_are_gone_are_not_sent_any_more(tmp_path: Path) -> None:
    told: list[str] = []
    entries = [AlertEntry(when=("loss > 1",)), AlertEntry(when=("acc > 1",))]
    with flightlog.record("train", runs_dir=tmp_path, sample_interval_s=None) as run:
        sender = AlertSender(run.path, lambda: entries, put=lambda one: told.append(one.rule), note=print)
        sender.look()
        del entries[0]
        run.metric("loss", 2.0)
        run.metric("acc", 2.0)
        run.recorder.files.flush()
        sender.look()
    assert told == ["acc > 1"]
