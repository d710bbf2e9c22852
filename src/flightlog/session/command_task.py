"""A command that runs as a task: any executable, in a worker."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.core.descriptors import Descriptor, make_pipe
from flightlog.core.errors import CommandError, UsageError
from flightlog.core.redaction import redact_command
from flightlog.core.text import signal_name
from flightlog.record.command.output_tee import Tail
from flightlog.record.context import ENVIRONMENT, carrier
from flightlog.record.span import current_span
from flightlog.samplers.usage import own_peak_rss_bytes

log = logging.getLogger("flightlog")

_MAX_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_PR_SET_PDEATHSIG = 1


class CommandOutput(Struct, frozen=True, kw_only=True):
    """What a command that ended with 0 leaves: the result of its task."""

    exit_code: int
    stdout: str
    """Its last lines, some 8,000 characters at most, with secrets redacted."""
    stderr: str
    stdout_bytes: int
    """How much it wrote in all."""
    stderr_bytes: int
    cpu_s: float
    """CPU time of the command and of the processes it waited for."""
    peak_rss_bytes: int | None
    """Resident memory of the largest of these processes; null where that was less than the worker's own."""


def command_words(command: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The words of a command; a `UsageError` for a single text, which would have to be split as a shell
    does.
    """
    if isinstance(command, str | bytes | os.PathLike):
        raise UsageError(f"give a command as a list of words, such as ['ls', '-l']: {command!r}")
    words = [os.fspath(word) for word in command]
    if not words or any(not isinstance(word, str) for word in words):
        raise UsageError(f"a command is a list of at least one word, all of them text: {words!r}")
    return words


def command_name(words: Sequence[str]) -> str:
    """What the task of a command is called: the program's own name."""
    return Path(words[0]).name or words[0]


def command_arguments(words: Sequence[str], cwd: str | None) -> dict[str, Any]:
    """The command as it is recorded, its secrets hidden."""
    made: dict[str, Any] = {"command": redact_command(words)}
    if cwd is not None:
        made["cwd"] = cwd
    return made


def run_words(words: Sequence[str], cwd: str | None, env: Mapping[str, str] | None) -> CommandOutput:
    """In the worker: run the command to its end. `env` is added to the worker's environment.

    The task gets the metrics `exit_code`, `command_cpu_s` and, where it is known, `command_peak_rss_bytes`.
    Another exit code than 0, a signal, or a program that cannot be started is a `CommandError`.
    """
    import subprocess

    place = {ENVIRONMENT[key]: value for key, value in carrier().items()}
    name = command_name(words)
    floor = own_peak_rss_bytes()
    (from_out, to_out), (from_err, to_err) = make_pipe(), make_pipe()
    try:
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {}), **place},
            stdin=subprocess.DEVNULL,
            stdout=to_out.fd,
            stderr=to_err.fd,
            preexec_fn=_die_with_parent(),  # noqa: PLW1509 - two C calls
        )
    except OSError as error:
        raise _failed(
            f"{name} could not be started: {error.strerror or error}: {error.filename}", 127
        ) from error
    finally:
        to_out.close()
        to_err.close()
    tails = Tail(), Tail()
    readers = [
        threading.Thread(target=_read, args=(pipe, tail, name), name="flightlog-output", daemon=True)
        for pipe, tail in zip((from_out, from_err), tails, strict=True)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = code = os.waitstatus_to_exitcode(status)
    cpu_s, peak = usage.ru_utime + usage.ru_stime, _peak(usage.ru_maxrss * _MAX_RSS_UNIT, floor)
    span = current_span()
    span.metrics.update(command_cpu_s=cpu_s, exit_code=code)
    if peak is not None:
        span.metrics["command_peak_rss_bytes"] = peak
    out, err = (tail.text() for tail in tails)
    if code != 0:
        how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        raise _failed(f"{name} {how}", code, out, err)
    return CommandOutput(
        exit_code=code,
        stdout=out,
        stderr=err,
        stdout_bytes=tails[0].total_bytes,
        stderr_bytes=tails[1].total_bytes,
        cpu_s=cpu_s,
        peak_rss_bytes=peak,
    )


def _failed(message: str, code: int, out: str = "", err: str = "") -> CommandError:
    error = CommandError(message)
    error.exit_code, error.signal = (code, None) if code >= 0 else (None, signal_name(-code))
    error.stdout, error.stderr = out, err
    error.error_type = error.signal or "ExitCode"
    return error


def _peak(largest: int, floor: int) -> int | None:
    """The kernel's mark counts from before the command took the place of the worker's copy, which had
    `floor`.
    """
    return largest if largest > floor else None


def _read(pipe: Descriptor, tail: Tail, name: str) -> None:
    """Read to the end, or for as long as the pipe is ours: who closes all descriptors of this process closes
    it, too.
    """
    try:
        while data := os.read(pipe.fd, 1 << 16):
            tail.add(data)
    except OSError as error:
        log.warning("the rest of what %s writes is not known: %s", name, error.strerror or error)
    pipe.close()


def _die_with_parent() -> Callable[[], None] | None:
    """On Linux, a command does not outlive the worker that is killed because of a timeout or a
    cancellation.
    """
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
