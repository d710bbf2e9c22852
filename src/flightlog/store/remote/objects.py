"""Objects under one address, by fsspec: listed, read, written and checked, removed; and which addresses are
valid, and how they are shown.

Each call is bounded in time and repeated where that may help. What clients raise becomes a `RemoteError`: one
sentence that says what happened, and what to do. Neither addresses nor sentences hold credentials.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import math
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, BinaryIO, TypeVar
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from flightlog.core.errors import MissingExtra, RemoteError, UsageError
from flightlog.core.retry import delays_s
from flightlog.core.settings import expanded
from flightlog.core.text import cut, first_line
from flightlog.store.limits import StoreLimits

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


class Listed(Struct, frozen=True):
    """One name in a folder."""

    name: str
    """From the root on, with `/`."""
    size: int | None
    folder: bool
    stamp: str
    """Changes when the object does, where the place keeps such a thing; empty where not."""


class WrittenObject(Struct, frozen=True):
    """What was written, and is there."""

    size: int
    sha256: str


class Objects:
    """The objects under an address. Every method raises `RemoteError`; names are from the address on, with
    `/`.

    Nothing is cached. Not thread-safe.
    """

    def __init__(self, filesystem: Any, root: str, address: str, calls: Calls | None = None) -> None:
        self.address = address
        self.calls = calls or Calls(address)
        self._fs, self._root = filesystem, root.rstrip("/")
        self._has_folders = protocol_of(address) not in EXTRAS

    def sharing(self, calls: Calls) -> Objects:
        """The same objects over the same connections, for another thread or with another patience."""
        return Objects(self._fs, self._root, self.address, calls)

    def read(self, name: str) -> bytes:
        """An object as a whole, which should be small."""
        data: bytes = self.calls(
            lambda: self._fs.cat_file(self._path(name)), carries=StoreLimits.transfer_chunk_bytes
        )
        return data

    def chunks(self, name: str, size: int | None = None) -> Iterator[bytes]:
        """An object, or its first `size` bytes: pieces of at most `transfer_chunk_bytes`, one call each."""
        size = self.size(name) if size is None else size
        for start in range(0, size, StoreLimits.transfer_chunk_bytes):
            end = min(start + StoreLimits.transfer_chunk_bytes, size)
            read = partial(self._fs.cat_file, self._path(name), start=start, end=end)
            data: bytes = self.calls(read, carries=end - start)
            if len(data) != end - start:
                raise make_error("changed", self.address, f"{name} is shorter than it should be")
            yield data

    def size(self, name: str) -> int:
        """How large an object is."""
        return int(self._info(name)["size"])

    def write(self, name: str, chunks: Iterable[bytes], *, replaces: bool = False) -> WrittenObject:
        """Write an object and see that it is there as it was sent; `replaces` where others may read the old
        one.

        `chunks` are of at most `transfer_chunk_bytes`. In folders, where a file is seen while it is written,
        one that replaces another is written beside it first.
        """
        folder, _, last = name.rpartition("/")
        aside = f"{folder}/.{last}.{os.urandom(4).hex()}.tmp" if replaces and self._has_folders else name
        sent = _Sent()
        source = sent.counted(chunks)
        first = next(source, b"")
        second = next(source, None)
        if second is None:
            self._making_folder(aside, lambda: self._fs.pipe_file(self._path(aside), first), len(first))
        else:
            self._stream(aside, first, second, source)
        if aside != name:
            self.calls(lambda: self._fs.mv(self._path(aside), self._path(name)))
        self._check(name, sent)
        return WrittenObject(sent.size, sent.sha256.hexdigest())

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; those that are gone already are passed over."""
        wanted = list(names)
        for start in range(0, len(wanted), 500):
            self._remove(wanted[start : start + 500])

    def _remove(self, names: list[str]) -> None:
        if not names:
            return
        try:
            if self._has_folders:
                for name in names:
                    self.calls(lambda name=name: self._fs.rm_file(self._path(name)))  # type: ignore[misc]
            else:
                self.calls(lambda: self._fs.rm([self._path(name) for name in names]))
        except RemoteError as error:
            if error.kind != "gone":
                raise
            if len(names) > 1:
                for name in names:
                    self._remove([name])

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _info(self, name: str) -> dict[str, Any]:
        def ask() -> dict[str, Any]:
            self._fs.invalidate_cache()
            found: dict[str, Any] = self._fs.info(self._path(name))
            return found

        return self.calls(ask)

    def find(self, folder: str, *, deep: bool = True) -> list[Listed]:
        """Every object under a folder by name, at any depth or, where it is not `deep`, what stands in it;
        nothing where there is none.
        """

        def ask() -> list[dict[str, Any]]:
            self._fs.invalidate_cache()
            if deep:
                return list(self._fs.find(self._path(folder), detail=True).values())
            return list(self._fs.ls(self._path(folder), detail=True))

        try:
            found = self.calls(ask)
        except RemoteError as error:
            if error.kind == "gone":
                return []
            raise
        entries = [_listed(entry, self._root) for entry in found]
        found_here = (entry for entry in entries if entry.name and entry.name != folder.rstrip("/"))
        return sorted(found_here, key=lambda entry: entry.name)

    def _making_folder(self, name: str, write: Any, carries: int) -> Any:
        """Write, where there are folders with the one that it needs."""
        try:
            return self.calls(write, carries=carries)
        except RemoteError as error:
            if not self._has_folders:
                if error.kind == "gone":
                    raise make_error("missing", self.address, "nothing can be written there") from error
                raise
            if error.kind not in {"gone", "other", "missing"}:
                raise
        try:
            self.calls(lambda: self._fs.makedirs(self._path(name).rpartition("/")[0], exist_ok=True))
            return self.calls(write, carries=carries)
        except RemoteError as error:
            if error.kind == "gone":
                raise make_error("missing", self.address, "no folder can be made there") from error
            raise

    def _stream(self, name: str, first: bytes, second: bytes, rest: Iterator[bytes]) -> None:
        """Write in pieces: by an upload in several parts where the place has such a thing."""
        out = self._making_folder(
            name,
            lambda: self._fs.open(self._path(name), "wb", block_size=StoreLimits.transfer_chunk_bytes),
            0,
        )
        try:
            for chunk in chain((first, second), rest):
                self.calls(partial(out.write, chunk), carries=len(chunk), again=False)
            self.calls(out.close, carries=2 * StoreLimits.transfer_chunk_bytes, again=False)
        except BaseException:
            self._discard(out)
            raise

    def _discard(self, out: Any) -> None:
        """Let go of an upload that failed, so that nothing of it appears; what cannot be told is left to the
        place.
        """
        with suppress(RemoteError):
            self.calls(getattr(out, "discard", lambda: None), again=False)
        with suppress(AttributeError):
            out.closed = True  # or the garbage collector completes it

    def _check(self, name: str, sent: _Sent) -> None:
        info = self._info(name)
        if info.get("size") is not None and int(info["size"]) != sent.size:
            raise make_error("changed", self.address, f"{name}: {sent.size} bytes sent, {info['size']} there")
        if sent.is_confirmed_by(info):
            return
        if sha256_of(self.chunks(name)) != sent.sha256.hexdigest():  # no checksum of a kind we know
            raise make_error("changed", self.address, f"{name}: SHA-256 is not that of what was sent")


class _Sent:
    """What goes by: its size and its checksums, as places compute them."""

    def __init__(self) -> None:
        self.size = 0
        self.sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._parts: list[bytes] = []

    def counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The same chunks."""
        for chunk in chunks:
            self.size += len(chunk)
            self.sha256.update(chunk)
            self._md5.update(chunk)
            self._parts.append(hashlib.md5(chunk, usedforsecurity=False).digest())
            yield chunk

    def is_confirmed_by(self, info: dict[str, Any]) -> bool:
        """Whether the place's own checksum is that of what went by. An encrypted object's is another: no
        proof.
        """
        tag = str(info.get("ETag") or "").strip('"').lower()
        joined = hashlib.md5(b"".join(self._parts), usedforsecurity=False).hexdigest()
        if tag and tag in {self._md5.hexdigest(), f"{joined}-{len(self._parts)}"}:
            return True
        settings = info.get("content_settings")
        noted = settings.get("content_md5") if isinstance(settings, dict) else None
        return any(
            _digest_bytes(found) == self._md5.digest() for found in (info.get("md5Hash"), noted) if found
        )


def _digest_bytes(found: Any) -> bytes:
    """A digest as bytes: as it is, or in base64."""
    try:
        return base64.b64decode(found) if isinstance(found, str) else bytes(found)
    except ValueError:
        return b""


def open_objects(
    address: str, *, calls: Calls | None = None, options: dict[str, Any] | None = None
) -> Objects:
    """The objects under an address, without asking it anything yet.

    Raises `UsageError` for an address that makes no sense, `MissingExtra` where its client is not installed.
    Credentials come from the provider's own chain; `options` are for fsspec, as its own configuration files
    and variables are.
    """
    shown = parse_address(address)
    calls = calls or Calls(shown)
    import fsspec

    protocol = protocol_of(shown)
    given: dict[str, Any] = {"use_listings_cache": False, **(options or {})}
    if protocol in {"s3", "s3a"} and "config_kwargs" not in fsspec.config.conf.get("s3", {}):
        given.setdefault(
            "config_kwargs", {"connect_timeout": 10, "read_timeout": 20, "retries": {"max_attempts": 2}}
        )
    try:
        filesystem, root = calls(lambda: fsspec.core.url_to_fs(shown, **given), again=False)
    except RemoteError as error:
        cause = error.__cause__
        if isinstance(cause, ImportError):
            extra = EXTRAS.get(protocol)
            how = f"pip install 'flightlog[{extra}]'" if extra else f"{cause}"
            raise MissingExtra(f"{shown} needs a package that is not installed: {how}") from error
        if isinstance(cause, ValueError) and "protocol" in str(cause).lower():
            raise UsageError(
                f"{shown}: nothing here knows {protocol}://; use s3://, abfs://, gs:// or a folder"
            ) from error
        raise
    return Objects(filesystem, root, shown, calls)


def file_chunks(source: BinaryIO, start: int, size: int) -> Iterator[bytes]:
    """So many bytes of an open file from a place on, in chunks. Raises FileNotFoundError where it has become
    shorter.
    """
    while size:
        data = os.pread(source.fileno(), min(size, StoreLimits.transfer_chunk_bytes), start)
        if not data:
            raise FileNotFoundError(f"{source.name} has become shorter")
        yield data
        start, size = start + len(data), size - len(data)


def sha256_of(chunks: Iterable[bytes]) -> str:
    """The SHA-256 of all chunks together, in hex."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _listed(entry: dict[str, Any], root: str) -> Listed:
    name = str(entry["name"])
    bare = name.lstrip("/").removeprefix(root.lstrip("/")).strip("/")
    stamp = entry.get("ETag") or entry.get("etag") or entry.get("LastModified") or entry.get("last_modified")
    stamp = stamp or entry.get("mtime") or entry.get("updated") or entry.get("created") or ""
    size = entry.get("size")
    return Listed(bare, None if size is None else int(size), entry.get("type") == "directory", str(stamp))


T = TypeVar("T")


class Calls:
    """Makes calls one after the other, each within `timeout_s` seconds and more for what it carries.

    What a call raises comes out as a `RemoteError` in a sentence. One that does not end is left behind on its
    thread, a daemon that keeps nobody from exiting, and the next has a thread of its own; it may still take
    effect much later. With `attempts` over 1 a call that met something passing, other than silence, is made
    again, after a pause that doubles, with jitter. Not thread-safe. `shown` is the address that messages
    name; `sleep` waits some seconds.
    """

    def __init__(
        self,
        shown: str,
        *,
        timeout_s: float = 30.0,
        attempts: int = 3,
        pause_s: float = 0.5,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.shown, self.timeout_s = shown, timeout_s
        self._attempts, self._pause_s, self._sleep = attempts, pause_s, sleep
        self._worker: _CallThread | None = None
        self.made = 0
        """Calls so far, each attempt counted."""

    def __call__(self, what: Callable[[], T], *, carries: int = 0, again: bool = True) -> T:
        """What `what()` gives; `carries` are the bytes that go over the line, `again` whether it may be
        repeated.
        """
        pauses_s = delays_s(self._pause_s, math.inf, jitter=0.5)
        for attempt in range(1, self._attempts + 1):
            try:
                return self._once(what, self.timeout_s + carries / StoreLimits.min_transfer_bytes_per_s)
            except RemoteError as error:
                passing = error.passing and error.kind != "timeout"  # that has taken long enough
                if not (again and passing) or attempt == self._attempts:
                    raise
            self._sleep(next(pauses_s))
        raise AssertionError("no attempt was made")

    def __del__(self) -> None:
        """Nobody asks any more: let the thread end."""
        worker = getattr(self, "_worker", None)
        if worker is not None:
            worker.asked.put(None)

    def _once(self, what: Callable[[], T], timeout_s: float) -> T:
        worker, self._worker = self._worker or _CallThread(), None
        self.made += 1
        worker.asked.put(what)
        try:
            value, error = worker.answers.get(timeout=timeout_s)
        except queue.Empty:
            worker.asked.put(None)  # let the thread end, if the call ever does
            problem = TimeoutError(f"no answer within {timeout_s:.0f} seconds")
            raise remote_error(problem, self.shown) from None
        self._worker = worker
        if isinstance(error, Exception):
            raise remote_error(error, self.shown) from error
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]


class _CallThread:
    """A thread that makes the calls it is asked for."""

    def __init__(self) -> None:
        self.asked: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="flightlog-remote", daemon=True).start()

    def _work(self) -> None:
        while (what := self.asked.get()) is not None:
            try:
                answer: tuple[Any, BaseException | None] = (what(), None)
            except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
                answer = (None, error)
            self.answers.put(answer)
            del what, answer  # which keep alive whoever asked, and with it this thread


_MISSING = r"nosuchbucket|containernotfound|(bucket|container) does not exist|no such bucket"
_FULL = r"insufficientstorage|quotaexceeded|quota exceeded|storagequota|no space left|disk quota"
_REFUSED = (
    r"connection refused|(could not|cannot) connect|endpointconnection|connectionclosed|connection was closed"
    r"|connection (reset|aborted)|name or service not known|server disconnected|broken pipe|incompleteread"
    r"|temporary failure in name resolution"
)
_CREDENTIALS = (
    r"nocredentials|unable to locate credentials|credentialretrieval|partialcredentials|clientauthentication"
    r"|must provide either a connection_string|anonymous caller|tokenretrieval|defaultcredentials"
    r"|expiredtoken|invalidaccesskeyid|signaturedoesnotmatch|server failed to authenticate"
)
_TIMEOUT = r"timeout|timed out"
_SERVER = (
    r"internalerror|serviceunavailable|slowdown|serverbusy|internal server error|operationtimedout"
    r"|reached max retries|bad gateway|service unavailable"
)
_HOW = {
    "timeout": "{at} does not answer ({why}); check the network, or try again later",
    "refused": "{at} cannot be reached ({why}); check the address, the network and any proxy",
    "server": "{at} has a problem of its own ({why}); try again later",
    "full": "{at} has no room left ({why}); free some, raise the quota, or use another address",
    "denied": "{at} refuses access ({why}); ask for the right to list, read, write and delete there",
    "credentials": "{at} takes no credentials from here ({why}); {chain}",
    "missing": "{at} does not exist ({why}); make the bucket, container or folder, or mend the address",
    "changed": "{at} holds something else than was put there ({why}); `flightlog sync --verify` says what",
    "gone": "{at} no longer has it ({why})",
    "other": "{at} failed ({why})",
}
_CHAIN = {
    "s3": "set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in",
    "azure": "set AZURE_STORAGE_ACCOUNT_NAME and a key, a SAS token or a connection string, or log in",
    "gcs": "set GOOGLE_APPLICATION_CREDENTIALS, or log in with gcloud",
}
PASSING = frozenset({"timeout", "refused", "server", "full", "other"})
"""Kinds that may be over when it is retried."""


_KINDS: tuple[tuple[Any, ...], ...] = (
    ("missing", _MISSING, set(), NotADirectoryError),
    ("full", _FULL, {507, errno.ENOSPC, errno.EDQUOT}),
    ("credentials", _CREDENTIALS, {401}),
    ("denied", None, {403}, PermissionError),
    ("gone", None, {404}, FileNotFoundError),
    ("timeout", _TIMEOUT, set(), TimeoutError),
    ("server", _SERVER, {429, 500, 502, 503, 504}),
    ("refused", _REFUSED, set(), ConnectionError, EOFError),
    ("denied", None, {errno.EROFS}, NotImplementedError),
)
"""Kinds of errors in the order in which they are looked for: words, HTTP statuses and numbers of the system's
errors, and classes."""


def remote_error(error: BaseException, shown: str) -> RemoteError:
    """The error in our words, for the address `shown`; one that is already is given back."""
    if isinstance(error, RemoteError):
        return error
    why = first_line(str(error)).rstrip(".") or type(error).__name__
    return make_error(_kind(error), shown, why)


def make_error(kind: str, shown: str, why: str) -> RemoteError:
    """An error of a kind, with the reason in brackets."""
    extra = EXTRAS.get(protocol_of(shown), "")
    text = _HOW[kind].format(
        at=scrub(shown), why=scrub(why), chain=_CHAIN.get(extra, "set up its client's own")
    )
    made = RemoteError(text)
    made.kind, made.passing = kind, kind in PASSING
    return made


def _kind(error: BaseException) -> str:
    chain = list(_chain(error))
    text = "\n".join(f"{type(one).__name__} {one}".lower() for one in chain)
    numbers = {number for one in chain for number in (*_numbers(one), getattr(one, "errno", None))}

    def fits(words: str | None, codes: set[int], *classes: type[BaseException]) -> bool:
        said = words is not None and re.search(words, text) is not None
        return said or bool(codes & numbers) or any(isinstance(one, classes) for one in chain)

    return next((kind for kind, *signs in _KINDS if fits(*signs)), "other")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came from, a few steps back."""
    for _ in range(6):
        if error is None:
            return
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _numbers(error: BaseException) -> Iterator[int]:
    """HTTP status codes, wherever the clients keep them."""
    for name in ("status_code", "status", "code"):
        value = getattr(error, name, None)
        if isinstance(value, int):
            yield value
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        value = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if isinstance(value, int):
            yield value
