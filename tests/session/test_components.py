"""What a component asks of its workers is there when its tasks run, and nowhere else."""

from __future__ import annotations

import json
import os

import pytest
import work_for_sessions as work
from sessions import THREADS, events_of, session_in

from flightlog.core.errors import UsageError
from flightlog.events import TaskSubmitted

ONE_WORKER = "targets:\n  local:\n    provider: local\n    max_workers: 1\n"
MORE = """
components:
  keyed:
    env: {TRIAL_KEY: "${TRIAL_SECRET}", TRIAL_MODE: fast}
    preload_script: preload.py
    tags: [secretive, spare]
  plain:
    tags: [spare]
"""


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIAL_SECRET", "hunter2")
    monkeypatch.setenv("TRIAL_MODE", "slow")
    monkeypatch.delenv("TRIAL_KEY", raising=False)


def test_variables_are_set_for_the_tasks_of_the_component_alone(tmp_path):
    (tmp_path / "preload.py").write_text("")
    with session_in(tmp_path, MORE, where=ONE_WORKER) as session:
        seen = [
            session.client.submit(work.variables, "TRIAL_KEY", "TRIAL_MODE", component=component).result()
            for component in ("keyed", "plain", None, "keyed")
        ]
    assert seen == [["hunter2", "fast"], [None, "slow"], [None, "slow"], ["hunter2", "fast"]]


def test_variables_are_there_before_the_call_is_unpickled_and_for_tasks_that_wait(tmp_path):
    (tmp_path / "preload.py").write_text("")
    with session_in(tmp_path, MORE, where=ONE_WORKER) as session:
        first = session.client.submit(
            work.give, work.ReadsTheEnvironmentWhenItIsUnpickled(), component="keyed"
        )
        assert session.client.submit(work.give, first, component="keyed").result() == "hunter2"
        out = session.client.submit_command(["sh", "-c", "echo $TRIAL_KEY"], tag="secretive").result()
    assert out.stdout == "hunter2\n"


def test_no_value_of_a_variable_reaches_the_run(tmp_path):
    (tmp_path / "preload.py").write_text("")
    with session_in(tmp_path, MORE) as session:
        session.client.submit(work.variables, "TRIAL_KEY", component="keyed").result()
    texts = {path.name: path.read_text() for path in session.path.iterdir() if path.is_file()}
    assert [name for name, text in texts.items() if "hunter2" in text] == []
    assert json.loads(texts["plan.json"])["components"]["keyed"]["env"]["TRIAL_KEY"] == "${TRIAL_SECRET}"


def test_the_script_is_executed_once_in_each_worker_before_its_first_task(tmp_path):
    (tmp_path / "preload.py").write_text(f"open({str(tmp_path / 'log')!r}, 'a').write('once\\n')\n")
    with session_in(tmp_path, MORE, where=ONE_WORKER) as session:
        session.client.submit(work.add, 1).result()
        assert not (tmp_path / "log").exists()
        session.client.gather(session.client.map(work.add, range(5), component="keyed"))
    assert (tmp_path / "log").read_text() == "once\n"


def test_a_script_that_fails_fails_the_tasks(tmp_path):
    (tmp_path / "preload.py").write_text("raise RuntimeError('no licence')")
    with session_in(tmp_path, MORE, where=ONE_WORKER) as session:
        errors = session.client.gather(
            session.client.map(work.add, range(2), component="keyed"), errors="return"
        )
    assert [repr(error) for error in errors] == ["RuntimeError('no licence')"] * 2


def test_in_threads_the_programs_own_environment_stays_as_it_is_and_that_is_said(tmp_path, caplog):
    (tmp_path / "preload.py").write_text("")
    with session_in(tmp_path, MORE, where=THREADS) as session:
        for _ in range(2):
            assert session.client.submit(work.variables, "TRIAL_KEY", component="keyed").result() == [None]
    assert "TRIAL_KEY" not in os.environ
    assert [record.getMessage() for record in caplog.records] == [
        "the env of component keyed is not set: its tasks run in threads of this program"
    ]


def test_a_tag_is_a_name_of_a_component_or_one_of_its_tags(tmp_path):
    (tmp_path / "preload.py").write_text("")
    with session_in(tmp_path, MORE, where=THREADS) as session:
        session.client.gather(
            [session.client.submit(work.add, 1, tag=tag) for tag in ("plain", "secretive", None)]
        )
        with pytest.raises(UsageError, match="tag='spare' is that of several components, keyed, plain"):
            session.client.submit(work.add, 1, tag="spare")
        with pytest.raises(UsageError, match="no component 'sparse'"):
            session.client.submit(work.add, 1, tag="sparse")
    assert [e.component for e in events_of(session, "tasks", TaskSubmitted)] == ["plain", "keyed", None]
