"""Exceptions that strike code from outside: of signal handlers, Ctrl-C, and those thrown in by another
thread.

Recording code catches whatever the user's objects raise (`__repr__`, `__float__`, properties), because that
must not reach the program. What a signal handler raises is meant for the program and must reach it, also when
it strikes in the middle of recording code, or of an object's code that recording code called. The traceback
tells them apart:

- A Python function that handles a signal has a frame of its own, called with the signal's number and the
  frame that it interrupted. Trace functions are called alike, and their exceptions are meant for the program,
  too. A handler that has thrown its arguments away is recognized by its code, as long as it is registered.
- A handler written in C, as the default one of Ctrl-C, has no frame: the traceback ends where it struck. The
  same holds for what other threads (`PyThreadState_SetAsyncExc`) and greenlets throw in. `KeyboardInterrupt`
  and other exceptions that end programs, unless a `raise` statement raised them, are taken for such;
  `SystemExit` is not, because objects raise it by calling `sys.exit`. So is any exception at an instruction
  that raises nothing by itself.

So an object's own `raise SystemExit` or `raise KeyboardInterrupt` stays here, and a real Ctrl-C passes. An
exception of another class that a handler written in C raises inside a C call cannot be told from one of that
call.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # as `signal`, without a name for each number
import functools
import opcode
import os
import signal
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, MethodType, TracebackType
from typing import Any, cast

from flightlog.core.threads import in_main_thread

# Flags of code objects: a function's; it takes *args, **kwargs.
_OPTIMIZED, _VARARGS, _VARKEYWORDS = 0x01, 0x04, 0x08
_RAISES_NOTHING = {opcode.opmap[name] for name in ("RESUME", "JUMP_BACKWARD") if name in opcode.opmap}
_RAISE = opcode.opmap["RAISE_VARARGS"]
_POINTER, _ACTION_BYTES = 8, 256  # of C's `struct sigaction`, which is smaller everywhere
_TRACED = frozenset({"call", "line", "return", "exception", "opcode"})
_NUMBERS = [int(number) for number in signal.valid_signals()]
_traceback_of = cast(Any, BaseException.__dict__["__traceback__"]).__get__  # a class may have another one


def is_interruption(error: BaseException) -> bool:
    """Whether an exception that was caught struck from outside, and is not one of the code that it came out
    of.
    """
    trace: TracebackType | None = _traceback_of(error)
    frames: list[FrameType] = []
    last = trace
    while trace is not None:
        frame = trace.tb_frame
        if frames and _is_called_with(frame, frames[-1]):
            return True
        frames.append(frame)
        last, trace = trace, trace.tb_next
    if last is None:
        return False
    handlers = set(_handler_codes())
    if any(frame.f_code in handlers for frame in frames[1:]):
        return True
    kind = type(error)
    if issubclass(kind, RecursionError | MemoryError):
        return False
    code, position = last.tb_frame.f_code.co_code, last.tb_lasti
    instruction = code[position] if 0 <= position < len(code) else None
    if instruction in _RAISES_NOTHING:
        return True
    if issubclass(kind, Exception | SystemExit | GeneratorExit):
        return False
    return instruction != _RAISE


def pass_interruption(error: BaseException) -> None:
    """Raise an exception again if it struck from outside; return if it is for the caller to deal with."""
    if is_interruption(error):
        raise error


def _is_called_with(frame: FrameType, interrupted: FrameType) -> bool:
    """Whether a function was called with a signal's number and the frame that it was called from, as handlers
    are.

    Trace functions are called with that frame and the name of an event.
    """
    code = frame.f_code
    flags = code.co_flags
    number = code.co_argcount + code.co_kwonlyargcount + bool(flags & _VARARGS) + bool(flags & _VARKEYWORDS)
    if not number or not flags & _OPTIMIZED:
        return False
    values: list[Any] = []
    for name in code.co_varnames[:number]:
        value = frame.f_locals.get(name)
        values += value if type(value) is tuple else [value]
    if not any(value is interrupted for value in values):
        return False
    return any(
        (type(value) is int and value in _NUMBERS) or (type(value) is str and value in _TRACED)
        for value in values
    )


def _handler_codes() -> Iterator[CodeType]:
    """The code of every Python function that handles a signal now."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        if handler is None or issubclass(type(handler), int):  # not Python's, the default action, or none
            continue
        for _ in range(10):
            if type(handler) is functools.partial:
                handler = handler.func
            elif type(handler) is MethodType:
                handler = handler.__func__
            elif type(handler) is FunctionType:
                yield handler.__code__
                break
            else:
                called = (base.__dict__.get("__call__") for base in type.mro(type(handler)))
                handler = next((one for one in called if one is not None), None)


_pythons_action: list[bytes] = []
"""What the kernel knows of a handler that Python has just set, the same for each; known from the first one
on."""
_waits: list[HandlersWait] = []
"""Those that are open, the innermost last; the main thread's alone."""


class HandlersWait:
    """A block inside which the program's signal handlers wait: they are called when it ends, each once for
    its signal.

    For steps that must not be cut off in the middle, as where a run begins or ends. What a handler raises
    comes out of the end of the block. Only the main thread runs handlers, so in others nothing waits;
    handlers of our own never do, nor do those written in C, and a second Ctrl-C does not wait either. A
    handler may still strike before the block is entered, which then raises, and nothing has happened.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, tuple[Callable[..., object], bytes]] = {}
        self._came: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> None:
        if not in_main_thread():
            return
        try:
            _waits.append(self)
            for number, handler in zip(_NUMBERS, map(_signal.getsignal, _NUMBERS), strict=True):
                if type(handler) is not int and handler is not None and not _is_ours(handler):
                    self._replace(number, handler)
        except BaseException:
            self._end()
            raise

    def __exit__(self, *_: object) -> None:
        if self._handlers:
            self._end()

    def _replace(self, number: int, handler: Callable[..., object]) -> None:
        action = _action(number)
        if _pythons_action and action[:_POINTER] != _pythons_action[0][:_POINTER]:
            return  # what the kernel calls is not Python: it is left alone
        self._handlers[number] = handler, action
        _signal.signal(number, self._note)
        if not _pythons_action:
            _pythons_action.append(_action(number))
            if action[:_POINTER] != _pythons_action[0][:_POINTER]:
                self._put_back(number)
                del self._handlers[number]

    def _put_back(self, number: int) -> None:
        """Set the handler again, and all that the kernel knew of it: which calls go on after it, and what is
        blocked.
        """
        handler, action = self._handlers[number]
        now: Any = _signal.getsignal(number)
        if type(now) is MethodType and now.__self__ is self:
            _signal.signal(number, handler)
            restore = _sigaction()
            if restore is not None and action and action not in _pythons_action:
                restore(number, action, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        again = number == signal.SIGINT and any(number == before for before, _ in self._came)
        self._came.append((number, frame))
        if again:
            self._came = [one for one in self._came if one[0] != number]
            self._handlers[number][0](number, frame)

    def _end(self) -> None:
        """Put the handlers back, also where one of them strikes meanwhile; then call those whose signals
        came.
        """
        try:
            for number in self._handlers:
                self._put_back(number)
            if self in _waits:
                _waits.remove(self)
        except BaseException:
            self._end()
            raise
        while self._came:
            number, frame = self._came.pop(0)
            try:
                self._handlers[number][0](number, frame)
            except BaseException:
                self._end()
                raise

    def after_fork(self) -> None:
        """A child that another thread has forked has the program's own handlers; what came is the
        parent's.
        """
        self._came = []
        for number in self._handlers:
            self._put_back(number)


def _after_fork() -> None:
    while _waits:
        _waits.pop().after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _is_ours(handler: object) -> bool:
    return type(handler) is MethodType and str(handler.__func__.__module__).startswith("flightlog.")


@functools.cache
def _sigaction() -> Callable[[int, bytes | None, Any], int] | None:
    """The C function, called without handing the interpreter over; None where there is none."""
    try:
        import ctypes

        function = ctypes.PyDLL(None).sigaction
        function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
    except (ImportError, OSError, AttributeError):
        return None
    return cast("Callable[[int, bytes | None, Any], int]", function)


def _action(number: int) -> bytes:
    """What the kernel knows of a signal's handler, its address first; empty where that cannot be asked."""
    ask = _sigaction()
    if ask is None:
        return b""
    import ctypes

    found = ctypes.create_string_buffer(_ACTION_BYTES)
    return found.raw if ask(number, None, found) == 0 else b""
