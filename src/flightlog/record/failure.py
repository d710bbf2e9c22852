"""An exception as text: what it is, what it says, where it came from, and a fingerprint of its cause.

Nothing here raises, changes the exception, or keeps it, its traceback or its frames alive.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, cast

from msgspec import Struct

from flightlog.core.interruption import pass_interruption
from flightlog.core.redaction import redact_text
from flightlog.record.limits import RecordLimits
from flightlog.record.values import bases_of, bounded, class_name, encodable, module_of, text_of, type_name

# Code names are texts.
_OWN_CODE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH100, PTH120
# Code names are texts.
_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep  # noqa: PTH100, PTH120
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

_PATH = r"(?:[A-Za-z]:)?(?:[/\\][\w.@+~-]++)++[/\\]?"
_HEXADECIMAL = r"\b0x[0-9a-fA-F]++|(?<![\w-])(?=[0-9a-fA-F-]*[0-9])[0-9a-fA-F-]{8,64}(?![\w-])"
_NUMBER = r"\d+(?:[.,]\d+)*"


class FailureText(Struct, frozen=True, kw_only=True):
    """What there is to say of an exception."""

    error_type: str
    """Its class, with its module unless built in."""
    message: str
    """Its `str`, bounded and redacted."""
    traceback: str | None
    """As Python prints it, with causes, groups and notes; bounded with both ends kept, and redacted."""
    fingerprint: str
    """16 hex digits, the same wherever the same code fails for the same reason."""


def describe(error: BaseException) -> FailureText:
    """The exception as text. Never raises: what cannot be had is said in its place, or None."""
    error_type = type_name(type(error))
    message = _message(error)
    return FailureText(
        error_type=error_type,
        message=message,
        traceback=_traceback(error),
        fingerprint=_fingerprint(error, error_type, message),
    )


def both_ends(text: str, limit: int) -> str:
    """The text, redacted and encodable; of a long one the first third and the last two, and what was cut."""
    if len(text) > 8 * limit:
        # Redaction costs time for each character, so it sees the ends alone.
        head, tail = _whole_lines(text[: 4 * limit], text[-4 * limit :])
        missing = len(text) - len(head) - len(tail)
        head, tail = redact_text(head), redact_text(tail)
    else:
        redacted = redact_text(text)
        if len(redacted) <= limit:
            return encodable(redacted)
        head, tail, missing = redacted, redacted, -len(redacted)
    first, last = head[: limit // 3], tail[-(limit - limit // 3) :]
    missing += len(head) - len(first) + len(tail) - len(last)
    return encodable(f"{first}\n… [+{missing} characters] …\n{last}")


def _whole_lines(head: str, tail: str) -> tuple[str, str]:
    """Both ends without the lines that were cut through: half a secret would not be recognized."""
    end = head.rfind("\n", len(head) * 3 // 4) + 1 or len(head) - RecordLimits.secret_margin_characters
    start = tail.find("\n", 0, len(tail) // 4) + 1 or RecordLimits.secret_margin_characters
    key_end = tail.find("-----END ")
    if key_end >= 0 and "-----BEGIN " not in tail[:key_end]:  # the rest of a key of several lines
        start = max(start, key_end)
    return head[: max(end, 0)], tail[start:]


def _message(error: BaseException) -> str:
    try:
        return bounded(str.__str__(str(error)), RecordLimits.max_message_characters)
    # The user's `__str__` runs here, and must not replace the user's error.
    except BaseException as second:  # noqa: BLE001
        pass_interruption(second)
        return f"<no message: its __str__ raised {type_name(type(second))}>"


def _traceback(error: BaseException) -> str | None:
    try:
        import traceback

        # Python's own printer, which survives a raising `__str__` and reads no local variables.
        return both_ends("".join(traceback.format_exception(error)), RecordLimits.max_traceback_characters)
    except BaseException as second:  # noqa: BLE001 - unreadable source, a loader of the user's, no stack left
        pass_interruption(second)
        return None


def _fingerprint(error: BaseException, error_type: str, message: str) -> str:
    import hashlib

    try:
        parts = [*_chain(error), *_places(error.__traceback__), _normal(message)]
    except BaseException as second:  # noqa: BLE001 - attributes of the user's own class
        pass_interruption(second)
        parts = [error_type]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _chain(error: BaseException) -> list[str]:
    """The types from the error to its root cause, those of a group's members included."""
    names: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(names) < RecordLimits.max_causes:
        seen.add(id(current))
        names.append(type_name(type(current)))
        if issubclass(type(current), BaseExceptionGroup):
            names.append(
                "+".join(sorted({type_name(type(member)) for member in cast(Any, current).exceptions}))
            )
        shown = None if current.__suppress_context__ else current.__context__
        current = current.__cause__ or shown
    return names


def _places(trace: TracebackType | None) -> list[str]:
    """File and function of the innermost frames of the user's code, or of any code if there is none of it."""
    places: list[tuple[bool, str]] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        # A text, not a file.
        place = f"{os.path.basename(code.co_filename)}:{code.co_qualname}"  # noqa: PTH119
        if not places or places[-1][1] != place:  # a recursion is one place, however deep
            places.append((_is_users(code.co_filename), place))
        trace = trace.tb_next
    users = [place for is_users, place in places if is_users]
    return (users or [place for _, place in places])[-RecordLimits.max_failure_frames :]


def _is_users(filename: str) -> bool:
    if filename.startswith(("<frozen", _OWN_CODE, _STANDARD_LIBRARY)):
        return False
    return not any(part in filename for part in _INSTALLED)


def _normal(message: str) -> str:
    """The message without what differs each time: paths, addresses, ids and numbers."""
    message = re.sub(_PATH, "<path>", message[:500])
    message = re.sub(_HEXADECIMAL, "<hex>", message)
    return re.sub(_NUMBER, "#", message)


def is_clean_exit(error: BaseException | None) -> bool:
    """Whether code ended as it should: without an exception, or by `sys.exit` with nothing or 0."""
    if error is None or not issubclass(type(error), SystemExit):
        return error is None
    code = cast(Any, SystemExit.__dict__["code"]).__get__(error)
    return code is None or (issubclass(type(code), int) and int.__eq__(code, 0) is True)


_OOM_CLASSES = frozenset({"OutOfMemoryError", "ResourceExhaustedError"})
_OOM_CLASSES_BY_TEXT = frozenset({"RuntimeError", "XlaRuntimeError", "JaxRuntimeError", "AcceleratorError"})
_OOM_PACKAGES = ("torch", "jax", "jaxlib", "tensorflow", "builtins")
_OOM_TEXTS = (
    "RESOURCE_EXHAUSTED",
    "CUDA out of memory",
    "HIP out of memory",
    "MPS backend out of memory",
    "CUDA error: out of memory",
    "HIP error: out of memory",
)

OutOfMemoryHandler = Callable[..., object]
_out_of_memory: OutOfMemoryHandler = lambda *_args, **_facts: None  # noqa: E731


def on_out_of_memory(handler: OutOfMemoryHandler) -> None:
    """Set what is called, with a recorder and the exception, where a device or the host ran out of memory."""
    global _out_of_memory
    _out_of_memory = handler


def tell_out_of_memory(recorder: object, error: BaseException, *here: object, **facts: Any) -> None:
    """Call that, if the exception means that memory ran out. It never raises."""
    if is_out_of_memory(error):
        _out_of_memory(recorder, error, *here, **facts)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an exception is a framework's out of memory on a device. Never raises; a microsecond for the
    others.

    Python's own MemoryError is not: that is the host's memory, and no allocator of a device has more to say
    on it.
    """
    if error is None:
        return False
    for kind in bases_of(type(error)):
        name = class_name(kind)
        if name not in _OOM_CLASSES and name not in _OOM_CLASSES_BY_TEXT:
            continue
        if module_of(kind).partition(".")[0] not in _OOM_PACKAGES:
            continue
        if name in _OOM_CLASSES:
            return True
        text = text_of(error)[: RecordLimits.max_oom_text_characters]
        return any(said in text for said in _OOM_TEXTS)
    return False
