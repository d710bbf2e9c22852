"""An S3 server of the test's own: moto's, which speaks HTTP as the real one does."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path


class S3Server:
    """Serves buckets at `url` until it is stopped; `requests` tells what was asked of it since it was last
    asked."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "s3-server.log"
        self._seen = 0
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait()

    def _wait(self, limit_s: float = 60.0) -> None:
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            try:
                urllib.request.urlopen(f"{self.url}/moto-api/", timeout=5).close()
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.1)  # it has not begun to listen
            else:
                return
        raise RuntimeError(f"moto's S3 server did not start:\n{self._log.read_text()[-2000:]}")

    def make_bucket(self, name: str) -> None:
        asked = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        urllib.request.urlopen(asked, timeout=10).close()

    def requests(self) -> list[str]:
        """Method and path of each request on objects and buckets since the last call."""
        text = re.sub(r"\x1b\[[0-9;]*m", "", self._log.read_text())  # failures are coloured
        new, self._seen = text[self._seen :], len(text)
        return [
            found
            for found in re.findall(r'"((?:GET|PUT|POST|HEAD|DELETE) \S+) HTTP', new)
            if "moto-api" not in found
        ]

    def environ(self, **more: str) -> dict[str, str]:
        """What a client's process finds in its environment to come here."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "FLIGHTLOG_"))
        }
        return kept | {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "a-hidden-word",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            **more,
        }

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
