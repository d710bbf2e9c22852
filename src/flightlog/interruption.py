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

import functools
import opcode
import signal
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType, MethodType, TracebackType
from typing import Any, cast

_OPTIMIZED, _VARARGS, _VARKEYWORDS = (
    0x01,
    0x04,
    0x08,
)  # flags of code objects: a function's; it takes *args, **kwargs
_RAISES_NOTHING = {opcode.opmap[name] for name in ("RESUME", "JUMP_BACKWARD") if name in opcode.opmap}
_RAISE = opcode.opmap["RAISE_VARARGS"]
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
