"""Messages arrive whole and in order, however they are cut; what was not read can be taken back."""

from __future__ import annotations

import os
import threading

from hypothesis import given
from hypothesis import strategies as st

from flightlog.engines.limits import EngineLimits
from flightlog.engines.wire import EngineEnd, Frame, Frames, WorkerEnd, frame

messages = st.lists(
    st.builds(
        Frame,
        st.sampled_from([b"O", b"S", b"E"]),
        st.integers(0, 2**64 - 1),
        st.binary(max_size=40),
        st.binary(max_size=40),
    ),
    max_size=8,
)


@given(messages, st.lists(st.integers(1, 60), min_size=1))
def test_frames_are_put_together_however_they_were_cut(sent, cuts):
    stream = b"".join(frame(*message) for message in sent)
    frames, got, number = Frames(), [], 0
    while stream:
        size = cuts[number % len(cuts)]
        got += frames.feed(stream[:size])
        stream, number = stream[size:], number + 1
    assert got == sent


def test_what_the_worker_has_not_read_is_taken_back_once():
    ours = EngineEnd()
    theirs = ours.worker_end()
    assert ours.send(frame(b"O", 7, b"head", b"body"))
    assert ours.send(frame(b"O", 8))
    assert theirs.receive() == Frame(b"O", 7, b"head", b"body")
    assert [ours.take_back(), ours.take_back()] == [8, None]
    assert theirs.receive(wait=False) is None
    ours.close()


def test_long_messages_go_both_ways_without_the_engine_waiting():
    ours = EngineEnd()
    theirs = ours.worker_end()
    body = bytes(range(256)) * (20 * EngineLimits.max_packet_bytes // 256)

    def echo() -> None:
        message = theirs.receive()
        assert message is not None
        theirs.send(frame(b"E", message.serial, b"", message.body))

    worker = threading.Thread(target=echo)
    assert ours.send(frame(b"O", 1, b"", body)) is False  # more than the socket holds
    worker.start()
    got: list[Frame] = []
    while not got:
        ours.flush()
        got += ours.receive()
    worker.join()
    assert got == [Frame(b"E", 1, b"", body)]
    ours.close()


def test_the_end_of_the_engine_is_the_end_for_the_worker():
    ours = EngineEnd()
    theirs = WorkerEnd(ours.descriptors()[1].duplicate(), EngineLimits.max_packet_bytes, None, 1)
    ours.close()
    assert theirs.receive() is None
    assert theirs.send(frame(b"E")) is False
    assert not theirs.lost


def test_what_a_worker_has_begun_is_known_when_the_engines_end_is_closed():
    ours = EngineEnd(threads=2)
    theirs = ours.worker_end()
    theirs.note(7, lane=0)
    theirs.note(6, lane=1)
    os.close(ours.number)
    assert [*ours.receive()] == []
    assert ours.lost
    assert ours.begun([5, 6, 7, 8, 9]) == {5, 6, 7}  # a worker takes them in their order
    assert ours.begun([8, 9]) == set()


def test_no_frame_gets_into_what_took_the_number_of_an_end():
    ours = EngineEnd()
    theirs = ours.worker_end()
    for end, number, send in ((ours, ours.number, ours.send), (theirs, theirs.number, theirs.send)):
        reader, writer = os.pipe()
        os.dup2(writer, number)
        send(frame(b"E", 1, b"head", b"body"))
        assert end.lost
        for one in (writer, number):  # ours to close
            os.close(one)
        assert os.read(reader, 100) == b""
        os.close(reader)
