"""Addresses of remote places: which are valid, and how they are shown. Neither holds credentials."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from flightlog.core.errors import UsageError
from flightlog.core.settings import expanded
from flightlog.core.text import cut

EXTRAS = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "abfs": "azure",
    "abfss": "azure",
    "az": "azure",
    "adl": "azure",
}
"""Which extra of Flightlog brings a protocol. All of them are without folders: an object appears whole, and
nothing has to be made for it first."""
_CHAINS = {
    "s3": "AWS_PROFILE, AWS_ACCESS_KEY_ID, ~/.aws or the instance's role",
    "gcs": "GOOGLE_APPLICATION_CREDENTIALS, gcloud's login or the instance's account",
    "azure": "AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, "
    "or AZURE_STORAGE_CONNECTION_STRING",
}
_NAMES = r"sig|signature|sas|token|key|secret|password|passwd|pwd|credentials?|auth"
_SECRET_NAME = re.compile(rf"(?i)(^|[^a-z])({_NAMES})$|^x-(amz|goog)-|accesskey|accountkey")
_PASSWORD = re.compile(r"://[^/@]*:(?!\d+/)[^@]*@")
"""Also one with a slash in it, as keys have; a number there is a port."""
_SCRUBBED = (
    (re.compile(r"(?i)([a-z][a-z0-9+.-]*://)[^\s@'\"]*:[^\s@'\"]*@"), r"\1…@"),  # a key may hold slashes
    (re.compile(r"(?i)([a-z][a-z0-9+.-]*://[^\s?'\"]*)\?[^\s'\"]+"), r"\1?…"),
    (
        re.compile(rf"(?i)\b([a-z_-]*(?:{_NAMES}|accountkey|accesskey|accesskeyid))(\s*[=:]\s*)[^\s;&,'\"]+"),
        r"\1\2…",
    ),
    (re.compile(r"(?i)\b(bearer|basic|aws4-hmac-sha256)\s+[^\s'\"]+"), r"\1 …"),
    (re.compile(r"\b(AKIA|ASIA)[0-9A-Z]{12,}"), r"\1…"),
)


def protocol_of(address: str) -> str:
    """`s3` of `s3://bucket/runs`; `file` of a path."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)(::|://)", address)
    return found[1].lower() if found else "file"


def is_address(text: str) -> bool:
    """Whether a text is an address, `s3://bucket/runs`, and not a path."""
    return "://" in text


def parse_address(text: str) -> str:
    """An address as it is used, shown and stored, without slash at its end; a path becomes `file://`,
    absolute.

    Raises `UsageError` for one that is empty, that holds a password, key or signature, or cannot be written
    to.
    """
    address = text.strip()
    if not address:
        raise UsageError("an empty address names no remote place; use for example s3://bucket/runs")
    if not is_address(address):
        return f"file://{expanded(address).absolute()}"  # as it is: fsspec decodes no %20
    protocol = protocol_of(address)
    if protocol in {"http", "https"}:
        raise UsageError(
            f"{scrub(address)} is a web address, which no run can be copied to; use s3://, "
            "abfs://, gs:// or a folder"
        )
    held = _credentials_in(address)
    if held:
        chain = _CHAINS.get(EXTRAS.get(protocol, ""), "the configuration of its own client")
        raise UsageError(
            f"the address {scrub(address)} holds {held}: take it out, for addresses are shown and stored. "
            f"Credentials come from {chain}"
        )
    return address.rstrip("/") if not address.endswith("://") else address


def scrub(text: str, limit: int = 300) -> str:
    """A text on one line without passwords, signatures and keys in it, cut to `limit` characters."""
    line = " ".join(text.split())
    for pattern, shown in _SCRUBBED:
        line = pattern.sub(shown, line)
    return cut(line, limit)


def _credentials_in(address: str) -> str | None:
    try:
        parts = urlsplit(address)
        if ":" in parts.netloc.rpartition("@")[0] or _PASSWORD.search(address):
            return "a password"
    except ValueError:
        raise UsageError(f"{scrub(address)} is no address; use for example s3://bucket/runs") from None
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if _SECRET_NAME.search(name):
            return f"credentials ({name}=…)"
    return None
