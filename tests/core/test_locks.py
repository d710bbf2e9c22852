"""A lock on a file has one holder, whatever happens to holders and files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flightlog.core.locks import is_locked, locked, try_lock


def test_a_lock_has_one_holder_until_it_is_released(tmp_path):
    first = try_lock(tmp_path / "lock")
    assert first is not None
    assert try_lock(tmp_path / "lock") is None
    first.release()
    first.release()
    second = try_lock(tmp_path / "lock")
    assert second is not None
    second.release()


def test_waiting_takes_the_lock_when_its_holder_lets_go(tmp_path):
    first = try_lock(tmp_path / "lock")
    assert first is not None
    threading.Timer(0.1, first.release).start()
    with locked(tmp_path / "lock", wait_s=None) as held:
        assert held


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path):
    program = (
        "import pathlib, sys, time\n"
        "from flightlog.core.locks import try_lock\n"
        "lock = try_lock(pathlib.Path(sys.argv[1])); print('held', flush=True); time.sleep(100)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, tmp_path / "lock"], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with locked(tmp_path / "lock") as held:
        assert not held
    assert is_locked(tmp_path / "lock")
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with locked(tmp_path / "lock") as held:
        assert held


def test_folders_are_locked_as_files_are(tmp_path):
    with locked(tmp_path, create=False) as held:
        assert held
        assert try_lock(tmp_path, create=False) is None


def test_asking_whether_a_file_is_locked_keeps_nobody_from_it_and_makes_no_file(tmp_path):
    assert not is_locked(tmp_path / "lock")
    assert not (tmp_path / "lock").exists()
    held = try_lock(tmp_path / "lock")
    assert is_locked(tmp_path / "lock")
    assert held is not None
    held.release()
    assert not is_locked(tmp_path / "lock")


def test_a_file_that_was_removed_while_it_was_held_locks_nobody_out(tmp_path):
    first = try_lock(tmp_path / "lock")
    (tmp_path / "lock").unlink()
    second = try_lock(tmp_path / "lock")
    assert first is not None
    assert second is not None


def test_a_holder_knows_that_the_program_closed_its_lock(tmp_path):
    lock = try_lock(tmp_path / "lock")
    assert lock is not None
    assert lock.still_held()
    os.close(lock._file.fd)
    assert not lock.still_held()


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        try_lock(tmp_path / "lock")
    assert not Path(tmp_path / "elsewhere").exists()
