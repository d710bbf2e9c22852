"""An address of Ray's is looked at before Ray is asked, which takes minutes to find that nobody is there."""

from __future__ import annotations

import socket
from errno import ECONNREFUSED
from os import strerror

import pytest

from flightlog.core.errors import UsageError
from flightlog.engines.ray.engine import START_ONE, check_answer, check_form


@pytest.mark.parametrize("address", ["auto", "10.0.0.1:6379", "head.cluster:6379", "[::1]:6379"])
def test_auto_and_host_with_port_are_addresses(address: str):
    check_form(address)


@pytest.mark.parametrize(
    "address", ["", "local", "head", "head:", ":6379", "head:ray", "head:65536", "head:²"]
)
def test_anything_else_is_refused_with_what_may_be_there(address: str):
    with pytest.raises(UsageError) as caught:
        check_form(address)
    assert str(caught.value) == f"address is {address!r}; it may be auto, or host:port as in 10.0.0.1:6379"


def test_somebody_who_listens_is_enough():
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_answer(f"127.0.0.1:{server.getsockname()[1]}")


def test_nobody_there_is_one_message_that_says_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(UsageError) as caught:
        check_answer(address)
    assert (
        str(caught.value)
        == f"no Ray answers at {address} ([Errno {ECONNREFUSED}] {strerror(ECONNREFUSED)}): {START_ONE}"
    )
    assert caught.value.__suppress_context__
