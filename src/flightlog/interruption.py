"""Exceptions that strike code from outside: of signal handlers, Ctrl-C, and those thrown in by another thread.

Recording code catches whatever the user's objects raise (`__repr__`, `__float__`, properties), because that must not
reach the program. What a signal handler raises is meant for the program and must reach it, also when it strikes in the
middle of recording code, or of an object's code that recording code called. The traceback tells them apart:

- A Python function that handles a signal has a frame of its own, called with the frame that it interrupted. No other
  function is called like that, except trace functions, whose exceptions are meant for the program, too. A handler that
  has thrown its arguments away is recognized by its code, as long as it is registered.
- A handler written in C, as the default one of Ctrl-C, has no frame: the traceback ends where it struck. The same holds
  for what other threads (`PyThreadState_SetAsyncExc`) and greenlets throw in. `KeyboardInterrupt` and other exceptions
  that end programs, unless a `raise` statement raised them, are taken for such; `SystemExit` is not, because objects
  raise it by calling `sys.exit`. So is any exception at an instruction that raises nothing by itself.

So an object's own `raise SystemExit` or `raise KeyboardInterrupt` stays here, and a real Ctrl-C passes. An exception of
another class that a handler written in C raises inside a C call cannot be told from one of that call.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # as `signal`, without a name for each number
import functools
import opcode
import signal
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, MethodType, TracebackType
from typing import Any, cast

from flightlog.threads import in_main_thread

_OPTIMIZED, _VARARGS, _VARKEYWORDS = (
    0x01,
    0x04,
    0x08,
)  # flags of code objects: a function's; it takes *args, **kwargs
_RAISES_NOTHING = {opcode.opmap[name] for name in ("RESUME", "JUMP_BACKWARD") if name in opcode.opmap}
_RAISE = opcode.opmap["RAISE_VARARGS"]
_NUMBERS = [int(number) for number in signal.valid_signals()]
_traceback_of = cast(Any, BaseException.__dict__["__traceback__"]).__get__  # a class may have another one


def is_interruption(error: BaseException) -> bool:
    """Whether an exception that was caught struck from outside, and is not one of the code that it came out of."""
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
    """Whether a function has the frame that it was called from among its arguments, as handlers of signals have."""
    code = frame.f_code
    flags = code.co_flags
    number = code.co_argcount + code.co_kwonlyargcount + bool(flags & _VARARGS) + bool(flags & _VARKEYWORDS)
    if not number or not flags & _OPTIMIZED:
        return False
    values = frame.f_locals
    for name in code.co_varnames[:number]:
        value = values.get(name)
        if value is interrupted:
            return True
        if type(value) is tuple and any(one is interrupted for one in value):
            return True
    return False


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
                handler = next(
                    (
                        base.__dict__["__call__"]
                        for base in type.mro(type(handler))
                        if "__call__" in base.__dict__
                    ),
                    None,
                )


class HandlersWait:
    """A block inside which the program's signal handlers wait: they are called when it ends, each once for its signal.

    For steps that must not be cut off in the middle, as where a run begins or ends. What a handler raises comes out of the
    end of the block. Only the main thread runs handlers, so in others nothing waits; handlers of our own never do. A
    handler may still strike before the block is entered, which then raises, and nothing has happened.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[..., object]] = {}
        self._came: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> None:
        if not in_main_thread():
            return
        try:
            for number in _NUMBERS:
                handler = _signal.getsignal(number)
                if callable(handler) and not _is_ours(handler):
                    self._handlers[number] = handler
                    _signal.signal(number, self._note)
        except BaseException:
            self._end()
            raise

    def __exit__(self, *_: object) -> None:
        if self._handlers:
            self._end()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append((number, frame))

    def _end(self) -> None:
        """Put the handlers back, also where one of them strikes meanwhile; then call those whose signals came."""
        try:
            for number, handler in self._handlers.items():
                if _signal.getsignal(number) == self._note:
                    _signal.signal(number, handler)
        except BaseException:
            self._end()
            raise
        while self._came:
            number, frame = self._came.pop(0)
            try:
                self._handlers[number](number, frame)
            except BaseException:
                self._end()
                raise


def _is_ours(handler: object) -> bool:
    return type(handler) is MethodType and str(handler.__func__.__module__).startswith("flightlog.")
