"""The door: what a worker said is heard, also when it was killed at once; and it is told when the engine is
over."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.engines.relay.channel import ChannelClient, ChannelServer


@pytest.fixture
def heard():
    return []


@pytest.fixture
def door(heard):
    door = ChannelServer(lambda pid, kind, text: heard.append((pid, kind, text)))
    yield door
    door.close()


def test_what_a_worker_says_is_heard_in_order_and_with_who_it_is(door, heard):
    knocker = ChannelClient(door.path, lambda: None)
    knocker.tell(b"B", b"first")
    knocker.tell(b"P", b"")
    door.listen()
    assert heard == [(os.getpid(), b"B", b"first"), (os.getpid(), b"P", b"")]


@given(texts=st.lists(st.binary(max_size=300), max_size=20))
def test_messages_come_out_as_they_went_in(texts):
    heard = []
    door = ChannelServer(lambda _pid, _kind, text: heard.append(text))
    try:
        knocker = ChannelClient(door.path, lambda: None)
        for text in texts:
            knocker.tell(b"B", text)
        door.listen()
        assert heard == texts
    finally:
        door.close()


def test_a_message_larger_than_the_socket_holds_arrives_whole(door, heard):
    text = os.urandom(3 << 20)
    knocker = ChannelClient(door.path, lambda: None)
    telling = threading.Thread(target=knocker.tell, args=(b"P", text))
    telling.start()
    while not heard:
        door.listen()
    telling.join()
    assert [said for _, _, said in heard] == [text]


def test_the_last_words_of_a_killed_process_are_heard(door, heard):
    program = (
        "import os, signal, sys; from flightlog.engines.relay.channel import ChannelClient\n"
        "ChannelClient(sys.argv[1], lambda: None).tell(b'B', b'last words')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    worker = subprocess.Popen([sys.executable, "-c", program, door.path])
    assert worker.wait(60) == -signal.SIGKILL
    door.listen()
    assert heard == [(worker.pid, b"B", b"last words")]


def test_workers_are_told_when_it_is_over_and_waited_for(door, heard):
    left = []
    for number in range(3):
        knocker = ChannelClient(door.path, lambda number=number: left.append(number))
        knocker.tell(b"B", b"here")
    door.listen()
    assert door.dismiss(timeout_s=60.0) is True
    assert sorted(left) == [0, 1, 2]
    assert len(heard) == 3  # that they left is nothing to be heard


def test_a_worker_that_does_not_leave_is_not_waited_for_for_ever(door):
    stuck = threading.Event()
    ChannelClient(door.path, stuck.wait).tell(b"B", b"here")
    door.listen()
    assert door.dismiss(timeout_s=0.01) is False
    stuck.set()


def test_a_door_that_is_not_there_is_an_error_of_the_system(tmp_path):
    with pytest.raises(OSError):
        ChannelClient(str(tmp_path / "channel"), lambda: None).tell(b"B", b"hello")


def test_only_this_user_can_knock_and_nothing_stays_behind(heard):
    door = ChannelServer(lambda *_facts: None)
    folder = Path(door.path).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    door.close()
    door.close()
    assert not folder.exists()


def test_a_connection_that_a_task_closed_is_opened_again_and_its_number_left_alone(door, heard):
    knocker = ChannelClient(door.path, lambda: None)
    knocker.tell(b"B", b"before")
    (number,) = [fd for fd in map(int, os.listdir("/proc/self/fd")) if _leads_to(fd, door)]
    reader, writer = os.pipe()
    os.dup2(writer, number)
    os.close(writer)
    knocker.tell(b"B", b"after")
    door.listen()
    os.close(number)
    assert os.read(reader, 100) == b""
    os.close(reader)
    assert sorted(heard) == [(os.getpid(), b"B", b"after"), (os.getpid(), b"B", b"before")]


def _leads_to(fd: int, door: ChannelServer) -> bool:
    try:
        with socket.socket(fileno=os.dup(fd)) as copy:
            return copy.getpeername() == door.path
    except OSError:
        return False


@pytest.mark.parametrize("what", ["socket.socket", "selectors.DefaultSelector", "tempfile.mkdtemp"])
def test_a_channel_that_cannot_be_made_is_a_warning(what, monkeypatch, caplog):
    def refuse(*_args, **_kwargs):
        raise OSError(errno.EMFILE, "too many open files")

    before = sorted(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(what, refuse)
    door = ChannelServer(lambda *_facts: None)
    assert door.path is None
    door.listen()
    assert door.dismiss(timeout_s=0.0) is True
    door.close()
    assert sorted(os.listdir("/proc/self/fd")) == before
    [said] = [record.getMessage() for record in caplog.records]
    assert "too many open files" in said


def test_the_folder_of_a_channel_that_the_program_closed_is_removed(caplog):
    door = ChannelServer(lambda *_facts: None)
    folder = Path(door.path).parent
    os.close(door._selector.fileno())
    door.listen()
    door.close()
    assert not folder.exists()
    assert len(caplog.records) == 1
