"""Functions, coroutines and generators whose every call is a span."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar, cast

from flightlog.record.span import Span, current, span

F = TypeVar("F", bound=Callable[..., Any])


def wrap(name: str, tags: dict[str, Any], function: F) -> F:
    """The function with a span around each call.

    A generator's span is open from its first step to its end, and is the current span only while the
    generator itself runs: its consumer's spans are not inside it.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with span(name, **tags):
                return await function(*args, **kwargs)

        return cast(F, coroutine)
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def async_generator(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            inner = function(*args, **kwargs)
            step, arg = inner.asend, None
            outer = current.get()
            try:
                with span(name, **tags) as this:
                    while True:
                        try:
                            item = await step(arg)
                        except StopAsyncIteration:
                            return
                        current.set(outer)
                        try:
                            arg, step = (yield item), inner.asend
                        except GeneratorExit:
                            outer = _resume(this)
                            await inner.aclose()
                            raise
                        # It goes into the generator, as if it were not wrapped.
                        except BaseException as error:  # noqa: BLE001
                            arg, step = cast(Any, error), inner.athrow
                        outer = _resume(this)
            finally:
                current.set(
                    outer
                )  # the consumer's span now, which need not be the one the generator began in

        return cast(F, async_generator)
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            inner = function(*args, **kwargs)
            step, arg = inner.send, None
            outer = current.get()
            try:
                with span(name, **tags) as this:
                    while True:
                        try:
                            item = step(arg)
                        except StopIteration as stop:
                            return stop.value
                        current.set(outer)
                        try:
                            arg, step = (yield item), inner.send
                        except GeneratorExit:
                            outer = _resume(this)
                            inner.close()
                            raise
                        # It goes into the generator, as if it were not wrapped.
                        except BaseException as error:  # noqa: BLE001
                            arg, step = error, inner.throw
                        outer = _resume(this)
            finally:
                current.set(
                    outer
                )  # the consumer's span now, which need not be the one the generator began in

        return cast(F, generator)

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with span(name, **tags):
            return function(*args, **kwargs)

    return cast(F, plain)


def _resume(this: Span) -> Span | None:
    """Make a generator's span the current one again; gives the one its consumer has now."""
    outer = current.get()
    if isinstance(this, Span):
        current.set(this)
    return outer
