"""Secrets written out in a manifest: found by line and kind, and not kept by the run."""

from __future__ import annotations

import json

import pytest
import work_for_sessions as work
import yaml
from sessions import session_in

from flightlog.cli.main import main
from flightlog.session.secrets import without_secrets, written_secrets

TOKEN = "ghp_" + "A1b2" * 9
MORE = f"""\
components:
  main:
    env:
      DB_PASSWORD: hunter2   # the old one was password=hunter3
      FROM_A_VARIABLE_TOKEN: ${{TRIAL_TOKEN}}
      SECRET_DEFAULT: ${{TRIAL_TOKEN:-hunter4}}
      URL: "postgres://bob:hunter5@db/sales"
      FOLDED_KEY: >
        {TOKEN}
      LIST: 'one, {TOKEN}, two'
      DEBUG: 1
"""
FOUND = [
    (4, "components.main.env.DB_PASSWORD", "value of a secret's name"),
    (4, "a comment", "value of a secret's name"),
    (6, "components.main.env.SECRET_DEFAULT", "value of a secret's name"),
    (7, "components.main.env.URL", "password or key in an address"),
    (8, "components.main.env.FOLDED_KEY", "GitHub token"),
    (10, "components.main.env.LIST", "GitHub token"),
]


def test_secrets_in_a_manifest_are_found_by_line_key_and_kind_and_variables_are_none() -> None:
    assert [(one.line, one.path, one.kind) for one in written_secrets(MORE)] == FOUND


def test_a_manifest_without_its_secrets_says_all_else_as_before() -> None:
    clean = without_secrets(MORE)
    assert yaml.safe_load(clean)["components"]["main"]["env"] == {
        "DB_PASSWORD": "[redacted]",
        "FROM_A_VARIABLE_TOKEN": "${TRIAL_TOKEN}",
        "SECRET_DEFAULT": "[redacted]",
        "URL": "postgres://bob:[redacted]@db/sales",
        "FOLDED_KEY": "[redacted]\n",
        "LIST": "one, [redacted], two",
        "DEBUG": 1,
    }
    assert "# the old one was password=[redacted]\n" in clean
    assert without_secrets(clean) == clean
    harmless = "a: 1 # token count\nb: [x, ${Y}]\n"
    assert without_secrets(harmless) == harmless


@pytest.mark.parametrize("as_written", [False, True])
def test_a_run_keeps_no_secret_of_its_manifest_unless_told_to_keep_it_as_written(
    tmp_path, monkeypatch, as_written
) -> None:
    monkeypatch.setenv("TRIAL_TOKEN", "hunter6")
    if as_written:
        monkeypatch.setenv("FLIGHTLOG_MANIFEST_AS_WRITTEN", "1")
    with session_in(tmp_path, MORE) as session:
        session.client.submit(work.add, 1).result()
    kept = {file.name: file.read_text() for file in session.path.iterdir() if file.is_file()}
    holding = {name for name, text in kept.items() if "hunter" in text or TOKEN in text}
    assert holding == ({"manifest.yaml"} if as_written else set())
    assert (kept["manifest.yaml"] == session.manifest.source) == as_written
    for name, key in (
        ("run.json", "manifest_hash"),
        ("plan.json", "manifest_sha256"),
        ("manifest.lock", "manifest_sha256"),
    ):
        assert json.loads(kept[name])[key] == session.manifest.sha256


def test_scrub_takes_the_secrets_out_of_a_manifest_that_was_kept_and_its_hash_stays(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("FLIGHTLOG_MANIFEST_AS_WRITTEN", "1")
    with session_in(tmp_path, "components:\n  main:\n    env:\n      A_TOKEN: hunter2\n") as session:
        session.client.submit(work.add, 1).result()
    kept = session.path / "manifest.yaml"
    assert "hunter2" in kept.read_text()
    assert main(["scrub", str(session.path)]) == 0
    assert kept.read_text().endswith('      A_TOKEN: "[redacted]"\n')
    assert json.loads((session.path / "run.json").read_text())["manifest_hash"] == session.manifest.sha256
    assert main(["verify", str(session.path)]) == 0
