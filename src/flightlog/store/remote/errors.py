"""What clients of remote places raise, as one sentence: what happened, and what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from flightlog.core.errors import RemoteError
from flightlog.store.remote.address import EXTRAS, protocol_of, scrub

_MISSING = (
    "nosuchbucket",
    "containernotfound",
    "bucket does not exist",
    "container does not exist",
    "no such bucket",
)
_FULL = (
    "insufficientstorage",
    "quotaexceeded",
    "quota exceeded",
    "storagequota",
    "no space left",
    "disk quota",
)
_REFUSED = (
    "connection refused",
    "could not connect",
    "cannot connect",
    "endpointconnection",
    "connectionclosed",
    "connection was closed",
    "connection reset",
    "name or service not known",
    "server disconnected",
    "connection aborted",
    "temporary failure in name resolution",
    "broken pipe",
    "incompleteread",
)
_CREDENTIALS = (
    "nocredentials",
    "unable to locate credentials",
    "credentialretrieval",
    "partialcredentials",
    "clientauthentication",
    "must provide either a connection_string",
    "anonymous caller",
    "tokenretrieval",
    "defaultcredentials",
    "expiredtoken",
    "invalidaccesskeyid",
    "signaturedoesnotmatch",
    "server failed to authenticate",
)
_TIMEOUT = ("timeout", "timed out")
_SERVER = (
    "internalerror",
    "serviceunavailable",
    "slowdown",
    "serverbusy",
    "internal server error",
    "operationtimedout",
    "reached max retries",
    "bad gateway",
    "service unavailable",
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
"""Kinds that may be over when it is tried again."""


def remote_error(error: BaseException, shown: str) -> RemoteError:
    """The error in our words, for the address `shown`; one that is already is given back."""
    if isinstance(error, RemoteError):
        return error
    return make_error(_kind(error), shown, _why(error))


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
    texts = [f"{type(one).__name__} {one}".lower() for one in chain]
    numbers = {number for one in chain for number in _numbers(one)}

    def says(words: tuple[str, ...]) -> bool:
        return any(word in text for word in words for text in texts)

    if says(_MISSING) or any(isinstance(one, NotADirectoryError) for one in chain):
        return "missing"
    if says(_FULL) or 507 in numbers or any(_errno(one) in {errno.ENOSPC, errno.EDQUOT} for one in chain):
        return "full"
    if says(_CREDENTIALS) or 401 in numbers:
        return "credentials"
    if 403 in numbers or any(isinstance(one, PermissionError) for one in chain):
        return "denied"
    if any(isinstance(one, FileNotFoundError) for one in chain) or 404 in numbers:
        return "gone"
    if any(isinstance(one, TimeoutError) for one in chain) or says(_TIMEOUT):
        return "timeout"
    if numbers & {429, 500, 502, 503, 504} or says(_SERVER):
        return "server"
    if any(isinstance(one, (ConnectionError, EOFError)) for one in chain) or says(_REFUSED):
        return "refused"
    if any(isinstance(one, NotImplementedError) or _errno(one) == errno.EROFS for one in chain):
        return "denied"
    return "other"


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


def _errno(error: BaseException) -> int | None:
    return error.errno if isinstance(error, OSError) else None


def _why(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0].rstrip(".")
    return text or type(error).__name__
