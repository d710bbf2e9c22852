"""Object stores that the tests start: moto's S3 server and Azurite; and a proxy before them that fails as it
is told."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from typing import Any

AZURITE = Path(__file__).parents[2] / ".servers/node_modules/.bin/azurite-blob"
ACCOUNT = "devstoreaccount1"
KEY = b64encode(token_bytes(64)).decode()
"""Of the account that Azurite is told to have; another one each time."""


class Proxy:
    """Passes bytes on to a server, and fails when `mode` says so, connections that are open included.

    `refuse` ends every connection at once, `hang` takes what comes and never answers, `slow` passes 256 KiB a
    second, `error` answers 500, `cut` ends a connection after `cut_after` bytes of it have gone to the
    server.
    """

    def __init__(self, port: int) -> None:
        self.mode = "pass"
        self.cut_after = 0
        self.passed = 0
        """Bytes that went to the server."""
        self._target = port
        self._held: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def mend(self) -> None:
        """Pass everything from now on; connections that something was swallowed of end, as they would."""
        self.mode, held, self._held = "pass", self._held, []
        for one in held:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.mode = "refuse"
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            if self.mode == "refuse":
                return
            with socket.create_connection(("127.0.0.1", self._target)) as server:
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()
                self._ask(client, server)

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        sent = 0
        while data := client.recv(1 << 16):
            if self.mode == "refuse":
                return
            if self.mode == "error":
                client.sendall(
                    b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
                return
            if self.mode == "hang":
                self._held.append(client)
                continue
            if self.mode == "slow":
                time.sleep(len(data) / (256 << 10))
            if self.mode == "cut" and sent + len(data) > self.cut_after:
                return
            server.sendall(data)
            sent += len(data)
            self.passed += len(data)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)


@dataclass(eq=False)
class Store:
    """An object store, and how it is reached through the proxy before it."""

    address: str
    proxy: Proxy
    environ: dict[str, str]
    """Variables for a process that shall reach it."""
    options: dict[str, Any]
    """The same for fsspec in this process."""
    secret: str
    """What must stand nowhere."""


@contextlib.contextmanager
def s3_store() -> Iterator[Store]:
    port = free_port()
    with _server([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port):
        proxy = Proxy(port)
        environ = {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "never-written-anywhere",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": proxy.url,
        }
        options = {"key": "testing", "secret": environ["AWS_SECRET_ACCESS_KEY"], "endpoint_url": proxy.url}
        import s3fs

        s3fs.S3FileSystem(skip_instance_cache=True, **options).mkdir("bucket")
        yield Store("s3://bucket/runs", proxy, environ, options, environ["AWS_SECRET_ACCESS_KEY"])
        proxy.close()


@contextlib.contextmanager
def azure_store() -> Iterator[Store]:
    assert AZURITE.exists(), f"{AZURITE} is missing: `make test-system` installs it"
    port = free_port()
    command = [
        str(AZURITE),
        "--inMemoryPersistence",
        "--silent",
        "--skipApiVersionCheck",
        "--disableTelemetry",
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
    ]
    with _server(command, port):
        proxy = Proxy(port)
        connection = (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            f"BlobEndpoint={proxy.url}/{ACCOUNT};"
        )
        options = {"connection_string": connection}
        import adlfs

        adlfs.AzureBlobFileSystem(skip_instance_cache=True, **options).mkdir("bucket")
        environ = {"AZURE_STORAGE_CONNECTION_STRING": connection}
        yield Store("abfs://bucket/runs", proxy, environ, options, KEY)
        proxy.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextlib.contextmanager
def _server(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "NODE_NO_WARNINGS": "1", "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert time.monotonic() < deadline, f"{command[0]} does not listen"
            time.sleep(0.05)
        yield
    finally:
        process.kill()  # asked to end, one may wait for connections that nobody closes; it holds nothing that is needed
        process.wait(30)
