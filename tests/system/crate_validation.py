"""roc-validator, run without a network: the one document it would fetch comes from the `rocrate` package."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

BIN = Path(__file__).parents[2] / ".servers/bin"
"""Where `make test-system` puts programs that pin what they need; roc-validator does."""
CONTEXT = "https://w3id.org/ro/crate/1.1/context"

_PREPARED = """
import io, sys
from importlib.resources import files
from requests.adapters import HTTPAdapter
from requests_cache import CachedSession
from urllib3 import HTTPResponse

class FromThePackage(HTTPAdapter):
    def send(self, request, **_):
        body = io.BytesIO(files("rocrate").joinpath("data/ro-crate.jsonld").read_bytes())
        kind = {"Content-Type": "application/ld+json"}
        return self.build_response(request, HTTPResponse(body, kind, 200, preload_content=False))

session = CachedSession(cache_name=sys.argv[1], backend="sqlite", expire_after=-1, allowable_codes=(200,))
session.mount("https://", FromThePackage())
session.get(sys.argv[2], headers={"Accept": "application/ld+json, application/json, */*;q=0.1"})
"""


def problems(crate: Path, folder: Path, *, severity: str = "REQUIRED") -> list[str]:
    """What roc-validator finds wrong with a crate, by the Provenance Run Crate profile and all it builds on.

    `folder` is for its cache and its answer.
    """
    cache, answer = folder / "http-cache", folder / "answer.json"
    if not cache.with_suffix(".sqlite").exists():
        subprocess.run([str(BIN / "python"), "-c", _PREPARED, str(cache), CONTEXT], check=True)
    done = subprocess.run(
        [
            *(str(BIN / "rocrate-validator"), "-y", "--disable-color", "validate"),
            *("--offline", "--cache-path", str(cache), "--profile-identifier", "provenance-run-crate-0.5"),
            *("--requirement-severity", severity, "--output-format", "json", "--output-file", str(answer)),
            *("--skip-availability-check", str(crate)),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert answer.exists(), f"roc-validator gave no answer ({done.returncode}):\n{done.stdout}{done.stderr}"
    found = json.loads(answer.read_text())
    return [f"{issue.get('message')} ({issue.get('violatingEntity')})" for issue in found["issues"]]
