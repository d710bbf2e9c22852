"""Tasks: dicts whose entries are also attributes, validated on creation, awaitable once submitted."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from itertools import count
from typing import Any

from flightlog.compat.rhapsody.api.errors import TaskValidationError

_numbers = count(1)  # `next` of it is atomic


class BaseTask(dict[str, Any], ABC):
    """Base of all tasks: `task.uid` is `task["uid"]`, and setting one sets the other.

    Tasks are equal when their ids are. Backends set `state`, `stdout`, `stderr`, `exit_code`, `return_value`,
    `response` and `exception`, which are None before. Awaiting a submitted task waits for its end.
    """

    _INTERNAL_ATTRS = frozenset({"_future"})
    _future: asyncio.Future[Any] | None

    def __init__(self, uid: str | None = None, backend: str | None = None, **kwargs: Any) -> None:
        super().__init__()
        self._future = None
        self["uid"] = f"task.{next(_numbers):06d}" if uid is None else uid
        self["backend"] = backend
        for name in ("state", "stdout", "stderr", "exit_code", "return_value", "response", "exception"):
            self[name] = None
        self.update(kwargs)
        self.validate()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self:
            return self[name]
        raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._INTERNAL_ATTRS:
            object.__setattr__(self, name, value)
        else:
            self[name] = value

    def validate(self) -> None:
        """Raise `TaskValidationError` where the task is invalid."""
        uid = self.get("uid")
        if not uid or not isinstance(uid, str):
            raise TaskValidationError(None, "uid must be a non-empty string")
        self._validate_specific()

    @abstractmethod
    def _validate_specific(self) -> None:
        """Validate what only this kind of task has; raises `TaskValidationError`."""

    def bind_future(self, future: asyncio.Future[Any]) -> None:
        """Set the future that awaiting the task waits for."""
        self._future = future

    def __await__(self) -> Generator[Any, None, Any]:
        if self._future is None:
            raise RuntimeError(f"Task {self['uid']} has no bound future. Has it been submitted to a Session?")
        return self._future.__await__()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), dict(self))  # a future stays in the process that waits

    def __hash__(self) -> int:  # type: ignore[override] # dicts have none
        return hash(self["uid"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BaseTask) and self["uid"] == other["uid"]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        entries = ", ".join(f"{name}={value!r}" for name, value in self.items())
        return f"{type(self).__name__}({entries})"

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> BaseTask:
        """The task of these entries: with a `prompt` an `AITask`, with an executable or function a
        `ComputeTask`.
        """
        if data.get("prompt") is not None:
            return AITask(**data)
        if data.get("executable") is not None or data.get("function") is not None:
            return ComputeTask(**data)
        raise TaskValidationError(
            data.get("uid"),
            "Cannot determine task type: must have 'prompt' (AITask) or 'executable'/'function' "
            "(ComputeTask)",
        )

    def _refuse(self, message: str) -> TaskValidationError:
        return TaskValidationError(self.get("uid"), message)

    def _require(self, name: str, kind: Any, said: str) -> None:
        """Refuse an entry that is set and of another kind."""
        value = self.get(name)
        if value is not None and not isinstance(value, kind):
            raise self._refuse(f"{name} must be {said}, got {type(value)}")


class ComputeTask(BaseTask):
    """A command with arguments, or a function with its own; the result of a function is `return_value`.

    Working directory, environment and shell are in `task_backend_specific_kwargs`. With `capture_stdio` the
    output of a command goes into files, and `stdout` and `stderr` are their paths.
    """

    def __init__(
        self,
        executable: str | None = None,
        function: Callable[..., Any] | None = None,
        arguments: list[str] | None = None,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        uid: str | None = None,
        input_files: list[str] | None = None,
        output_files: list[str] | None = None,
        capture_stdio: bool = False,
        **extra_kwargs: Any,
    ) -> None:
        super().__init__(
            uid=uid,
            executable=executable,
            function=function,
            arguments=[] if arguments is None else arguments,
            args=() if args is None else args,
            kwargs={} if kwargs is None else kwargs,
            input_files=input_files,
            output_files=output_files,
            capture_stdio=capture_stdio,
            **extra_kwargs,
        )

    def _validate_specific(self) -> None:
        executable, function = self.get("executable"), self.get("function")
        if executable is None and function is None:
            raise self._refuse("ComputeTask requires either 'executable' or 'function' to be specified")
        if executable is not None and function is not None:
            raise self._refuse("ComputeTask cannot have both 'executable' and 'function' specified")
        if function is None:
            self._require("executable", str, "a string")
            self._require("arguments", list, "a list")
            return
        if not callable(function):
            raise self._refuse(f"function must be callable, got {type(function)}")
        self._require("args", (tuple, list), "a tuple or list")
        self._require("kwargs", dict, "a dict")


class AITask(BaseTask):
    """A prompt for a model, an endpoint or a backend that has one; the answer is `response`."""

    def __init__(
        self,
        prompt: str,
        model: str | None = None,
        inference_endpoint: str | None = None,
        system_prompt: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        stop_sequences: list[str] | None = None,
        uid: str | None = None,
        backend: str | None = None,
        **extra_kwargs: Any,
    ) -> None:
        super().__init__(
            uid=uid,
            backend=backend,
            prompt=prompt,
            model=model,
            inference_endpoint=inference_endpoint,
            system_prompt=system_prompt,
            temperature=temperature,
            max_tokens=max_tokens,
            top_p=top_p,
            top_k=top_k,
            stop_sequences=stop_sequences,
            **extra_kwargs,
        )

    def _validate_specific(self) -> None:
        prompt = self.get("prompt")
        if not prompt:
            raise self._refuse("prompt is required")
        if not isinstance(prompt, str | list):
            raise self._refuse(f"prompt must be a string or list of strings, got {type(prompt)}")
        for number, part in enumerate(prompt if isinstance(prompt, list) else []):
            if not isinstance(part, str):
                raise self._refuse(f"prompt item {number} must be a string, got {type(part)}")
        if not any(self.get(name) for name in ("model", "inference_endpoint", "backend")):
            raise self._refuse(
                "AITask requires either 'model', 'inference_endpoint', or 'backend' to be specified"
            )
        for name in ("model", "inference_endpoint"):
            self._require(name, str, "a string")
        self._limit("temperature", (int, float), lambda value: value >= 0, "be a non-negative number")
        self._limit("max_tokens", int, lambda value: value >= 1, "be a positive integer")
        self._limit("top_p", (int, float), lambda value: 0 <= value <= 1, "be between 0 and 1")
        self._limit("top_k", int, lambda value: value >= 1, "be a positive integer")
        self._require("stop_sequences", list, "a list")

    def _limit(self, name: str, kind: Any, holds: Callable[[Any], bool], said: str) -> None:
        value = self.get(name)
        if value is not None and not (isinstance(value, kind) and holds(value)):
            raise self._refuse(f"{name} must {said}, got {value}")


def _restored(kind: type[BaseTask], entries: dict[str, Any]) -> BaseTask:
    """A task as it was pickled."""
    task: BaseTask = kind.__new__(kind)
    task._future = None
    task.update(entries)
    return task
