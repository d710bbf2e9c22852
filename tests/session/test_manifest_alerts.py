"""`alerts` of a manifest: checked, kept without secrets, and sent while a session runs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from builders.alert_receivers import SECRET, hook

from flightlog import Session
from flightlog.cli.main import main
from flightlog.core.errors import ManifestError
from flightlog.session.manifest import parse_manifest
from flightlog.session.secrets import without_secrets, written_secrets

HEAD = "version: 1\nproject: {name: sweep}\n"


def contents(text: str, environ: dict[str, str] | None = None):
    return parse_manifest(HEAD + text, Path("flightlog.yaml")).resolved(environ or {}, "local")


def test_rules_and_actions_are_read() -> None:
    [first, second] = contents(
        """
alerts:
  - when: [failed, memory > 90 %, 'loss < 0.1 for 3 steps']
    every: 10m
    notify: ["${ADDRESS}"]
  - when: [finished]
    command: [notify-send, done]
    webhook: https://example.org/
    python: my.alerts:tell
""",
        {"ADDRESS": "ntfy://topic"},
    ).alerts
    assert (first.when, first.every_s, first.notify) == (
        ("failed", "memory > 90 %", "loss < 0.1 for 3 steps"),
        600.0,
        ("ntfy://topic",),
    )
    assert (second.command, second.webhook, second.python) == (
        ("notify-send", "done"),
        "https://example.org/",
        "my.alerts:tell",
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "alerts: [{when: [fialed]}]",
            "alerts[0].when[0]: 'fialed' is no rule of an alert; did you mean 'failed'?",
        ),
        ("alerts: [{when: failed}]", "alerts[0].when: 'failed' is no list; write [failed]"),
        ("alerts: [{notify: [x]}]", "alerts[0].when: is missing"),
        (
            "alerts: [{when: [failed], webhook: s3cret}]",
            "webhook: what is written here is not a server address",
        ),
        ("alerts: [{when: [failed], python: tell}]", "is no function: write module:function"),
        ("alerts: [{when: [failed], evry: 1h}]", "'evry' is no key; did you mean 'every'?"),
        ("alerts: {when: [failed]}", "alerts"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, why: str) -> None:
    with pytest.raises(ManifestError) as refused:
        contents(text)
    assert why in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_addresses_are_kept_out_of_the_run() -> None:
    text = HEAD + (
        "alerts:\n"
        "  - when: [failed]\n"
        "    notify: ['slack://s3cretA/s3cretB/s3cretC', \"${ADDRESS}\", 'mailto://me:s3cret@example.org']\n"
        "    webhook: https://example.org/hooks/s3cret\n"
        "  - when: [finished]\n"
        "    webhook: https://example.org\n"
        "overlays:\n"
        "  night: {alerts: [{when: [failed], notify: ['tgram://s3cret/1']}]}\n"
    )
    kept = without_secrets(text)
    assert "s3cret" not in kept
    assert "slack://[redacted]" in kept
    assert "${ADDRESS}" in kept
    assert '"https://example.org/[redacted]"' in kept
    assert "webhook: https://example.org\n" in kept
    assert {one.kind for one in written_secrets(text)} >= {"address of a notification"}


def test_a_session_is_watched_and_its_log_tells_what_goes_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    monkeypatch.setenv("FLIGHTLOG_FOLLOWERS_WAIT", "60")
    with hook() as receiver:
        monkeypatch.setenv("HOOK", receiver.address)
        (tmp_path / "flightlog.yaml").write_text(
            HEAD
            + """
alerts:
  - when: [finished, tasks failed]
    webhook: ${HOOK}
  - when: [tasks failed]
  - when: [finished]
    python: told_of_alerts:tell
"""
        )
        (tmp_path / "told_of_alerts.py").write_text(
            f"def tell(alert): open({str(tmp_path / 'told')!r}, 'w').write(alert.message)\n"
        )
        with Session(tmp_path, runs_dir=tmp_path / "runs", progress=False) as session:
            future = session.client.submit(int, "no number")
            assert isinstance(future.exception(), ValueError)
        assert sorted(one["rule"] for one in receiver.posted) == ["finished", "tasks failed"]
    said = [record.getMessage() for record in caplog.records]
    assert any(one.startswith("alert: int failed: ValueError: invalid literal") for one in said)
    assert "1 task, 1 failed" in (tmp_path / "told").read_text()
    files = [file.read_bytes() for file in session.path.rglob("*") if file.is_file()]
    assert not any(SECRET.encode() in text for text in files)


def test_a_session_goes_on_where_no_thread_can_be_had_for_its_alerts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    def no_thread(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(import_module("flightlog.record.alerts"), "Ticker", no_thread)
    (tmp_path / "flightlog.yaml").write_text(HEAD + "alerts: [{when: [failed]}]\n")
    with Session(tmp_path, runs_dir=tmp_path / "runs", progress=False) as session:
        assert session.client.submit(int, "1").result() == 1
    said = [record.getMessage() for record in caplog.records]
    assert any("are not looked for: RuntimeError: can't start new thread" in one for one in said)


def test_a_manifest_and_a_program_that_ask_for_the_same_are_both_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    monkeypatch.setenv("FLIGHTLOG_FOLLOWERS_WAIT", "60")
    (tmp_path / "flightlog.yaml").write_text(f"{HEAD}alerts: [{{when: [finished]}}]\n")
    told: list[str] = []
    with Session(tmp_path, runs_dir=tmp_path / "runs", progress=False) as session:
        session.telemetry.alert("finished", lambda alert: told.append(alert.rule))
    logged = [record.getMessage() for record in caplog.records if record.getMessage().startswith("alert: ")]
    assert (told, len(logged)) == (["finished"], 1)


def test_validate_knows_alerts(tmp_path: Path, capsys) -> None:
    (tmp_path / "flightlog.yaml").write_text(f"{HEAD}alerts: [{{when: [failed, oops]}}]\n")
    assert main(["validate", str(tmp_path)]) == 1
    assert "alerts[0].when[1]: 'oops' is no rule of an alert" in capsys.readouterr().out
    (tmp_path / "flightlog.yaml").write_text(
        f"{HEAD}alerts: [{{when: [failed], notify: ['slack://s3cret/s3cret']}}]\n"
    )
    assert main(["validate", str(tmp_path)]) == 0
    assert "alerts.notify: looks like a secret (address of a notification)" in capsys.readouterr().err
