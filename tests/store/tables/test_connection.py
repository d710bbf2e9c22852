"""A connection of our own prints nothing, and Ctrl-C ends it as it ends everything else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from flightlog.store.tables.connection import INTERRUPTED, private_connection


def setting(connection, name: str):
    return connection.execute(f"SELECT current_setting('{name}')").fetchone()[0]


def test_no_progress_bar_is_drawn_whatever_the_caller_sits_in(tmp_path):
    with private_connection({"temp_directory": str(tmp_path)}) as connection:
        assert setting(connection, "enable_progress_bar") is False
        assert setting(connection, "temp_directory") == str(tmp_path)


def test_ctrl_c_while_duckdb_works_is_a_keyboard_interrupt_and_other_errors_stay_what_they_are():
    with pytest.raises(KeyboardInterrupt), private_connection():
        raise RuntimeError(INTERRUPTED)
    with pytest.raises(RuntimeError, match="something else"), private_connection():
        raise RuntimeError("something else")


def test_duckdb_says_of_an_interruption_what_is_looked_for():
    """A real signal, in a process of its own: the words are DuckDB's, and may change with it.

    One thread: where others do the work, DuckDB looks for signals only when its own has some to do.
    """
    program = """
import os, signal, threading
from flightlog.store.tables.connection import private_connection
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with private_connection({"threads": "1"}) as connection:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        connection.execute(
            "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
        ).fetchall()
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
