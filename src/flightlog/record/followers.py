"""Followers: our own commands, running beside a run in processes of their own to carry it elsewhere, or to
send alerts.

A follower reads the run directory as anyone may, so the recorded program does no network I/O, waits for none,
and a run that is killed is still sent to its end. It is no child of the program: it stands in a session of
its own at nice 10, its use of the machine is not counted as the run's, and it goes on when the program is
gone. It ends by itself, see `flightlog sync --follow`, `flightlog export --follow` and `flightlog
alert`.

What it says stands in `.followers/<name>.log` of the run, and its exit code, once it has ended, in
`<name>.exit`. Whatever else a follower must remember may stand in that folder, too: it belongs to this place
and is no part of the run.
"""

from __future__ import annotations

import logging
import os
import posix
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from flightlog.core import threads
from flightlog.core.descriptors import make_pipe
from flightlog.core.settings import Settings
from flightlog.core.threads import sleep
from flightlog.record.context import active_runs
from flightlog.record.limits import RecordLimits
from flightlog.samplers.procfs import parse_process_stat
from flightlog.store import layout
from flightlog.store.liveness import is_same, process_start

log = logging.getLogger("flightlog")

Trouble = Callable[[str, str], None]
"""Is told what goes wrong: its kind, and a sentence."""

NOT_PASSED_ON = ("FLIGHTLOG_RUN", "FLIGHTLOG_DEVICE_MEMORY", "TRACEPARENT")
"""Variables that would make a follower part of the run."""
ALERTS = "alerts"
"""How the names of followers begin that send alerts."""
INTERPRETERS = ("python", "pypy", "graalpy")
"""How the name of a program begins that takes `-m flightlog` for what it is."""

_SHELL = "/bin/sh"
_SCRIPT = f"""
if command -v nice >/dev/null 2>&1; then set -- nice -n 10 "$@"; fi
{{
  ( "$@" 2>&1 >/dev/null; echo "$?" >"$0.exit" ) | {{ head -c {RecordLimits.max_log_bytes} >"$0.log"; cat; }}
}} >/dev/null 2>&1 &
echo "$!"
"""
"""Starts `"$@"` in the background and says which process lives for as long as it does."""

_SCRIPT_BESIDE = """
if command -v nice >/dev/null 2>&1; then set -- nice -n 10 "$@"; fi
"$@" </dev/null >/dev/null 2>&1 &
echo "$!"
"""
_COMPLETE = (
    "import sys, pathlib; from flightlog.store import completing as c; "
    "c.complete_ended(pathlib.Path(sys.argv[1]))"
)


class FollowerProcess(Struct, frozen=True, kw_only=True):
    """One command that was started beside a run."""

    name: str
    pid: int
    """Of the shell around the command, which ends right after it."""
    pid_start: float | None
    group: int
    """The process group of all of it."""
    finish_by: str
    """What to type to do the same later."""


_started: dict[Path, dict[str, FollowerProcess]] = {}
_when_finished: dict[Path, list[Callable[[], None]]] = {}
_to_bury: list[FollowerProcess] = []
"""Those whose run is over; at most `MAX_LEFT`, the newest."""
_beside: list[FollowerProcess] = []
"""Processes that were started to complete runs."""


def asked_followers(run_path: Path, settings: Settings) -> dict[str, list[str]]:
    """The followers that the environment asks for: their names, and the arguments of `flightlog`."""
    asked: dict[str, list[str]] = {}
    if settings.remote is not None:
        asked["sync"] = ["sync", str(run_path), "--follow"]
    if settings.otlp:
        asked["otlp"] = ["export", str(run_path), "--to", "otlp", "--follow"]
    if settings.alerts:
        asked[ALERTS] = ["alert", str(run_path)]
    return asked


def start_asked(
    run_path: Path, settings: Settings, trouble: Trouble | None = None, sent_otherwise: Iterable[str] = ()
) -> None:
    """Start every follower that the environment asks for; as `start_follower`.

    `sent_otherwise` are signals, such as `traces`, that the program sends to OpenTelemetry's endpoint itself.
    """
    environ = os.environ | {f"OTEL_{signal.upper()}_EXPORTER": "none" for signal in sent_otherwise}
    asked = asked_followers(run_path, settings)
    problems: list[str] = []
    if settings.alerts:  # what is wrong with them is said at once, and not when the run is over
        try:
            problems += _alert_problems(environ.get("FLIGHTLOG_ALERTS", "[]").strip())
        except Exception as error:  # noqa: BLE001 - no list of entries, or a file that cannot be read
            problems.append(f"{error}; no alerts are looked for")
            del asked[ALERTS]
    for problem in problems:
        message = f"FLIGHTLOG_ALERTS: {problem}"
        if trouble is not None:
            trouble(message, message)
        else:
            log.warning("%s", message)
    for name, arguments in asked.items():
        start_follower(run_path, name, arguments, environ=environ, trouble=trouble)


def _alert_problems(value: str) -> list[str]:
    """Where alerts that a variable asks for cannot be sent; raises where it is no list of entries."""
    from flightlog.core.alerts import read_entries

    text = Path(value[1:]).expanduser().read_text("utf-8") if value.startswith("@") else value
    return [problem for entry in read_entries(text) for problem in entry.problems()]


def start_follower(
    run_path: Path,
    name: str,
    arguments: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    trouble: Trouble | None = None,
) -> None:
    """Run `flightlog ARGUMENTS` beside a run of this process's, once a name. Takes milliseconds and never
    raises.

    One that cannot be started is a warning, and a note among the problems of the run where this process
    records it.
    """
    environ = os.environ if environ is None else environ
    mine = _started.setdefault(run_path, {})
    if name in mine:
        return
    try:
        mine[name] = _start(run_path, name, arguments, environ)
    except Exception as error:  # noqa: BLE001 - whatever keeps it from starting, the program goes on
        message = f"`flightlog {_shown(arguments)}` could not be started beside the run: {error}"
        recorders = [run.recorder for run in active_runs() if run.path == run_path]
        if trouble is not None or recorders:
            (trouble or recorders[0].trouble)(f"follower {name}", message)
        else:
            log.warning("%s", message)


def when_finished(run_path: Path, action: Callable[[], None]) -> None:
    """Do something once the followers of a run have ended, or are no longer waited for."""
    _when_finished.setdefault(run_path, []).append(action)


def finish_followers(run_path: Path, timeout_s: float) -> tuple[str, ...]:
    """Wait until the followers of a run that has ended have ended, too, `timeout_s` seconds at the most.

    Each that failed, and each that still has something to do and goes on doing it, is a warning in one line;
    gives these lines. Raises nothing of its own; Ctrl-C ends the waiting, and is the program's as ever.
    """
    followers, actions = _started.pop(run_path, {}), _when_finished.pop(run_path, [])
    if not followers and not _to_bury and not actions:
        return ()
    lines: tuple[str, ...] = ()
    try:
        _wait(followers.values(), time.monotonic() + timeout_s)
    finally:
        _bury(followers.values())
        _note_left(run_path.parent, [one for one in followers.values() if _is_alive(one)])
        lines = tuple(line for one in followers.values() if (line := _outcome(run_path, one)) is not None)
        for line in lines:
            log.warning("%s", line)
        for action in actions:
            action()
    return lines


def _wait(followers: Collection[FollowerProcess], deadline: float) -> None:
    pause_s = 0.01
    while any(map(_is_alive, followers)) and time.monotonic() < deadline:
        sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
        pause_s = min(pause_s * 1.5, 0.2)


def followers_of(run_path: Path) -> tuple[FollowerProcess, ...]:
    """The followers that this process has started beside a run that goes on."""
    return tuple(_started.get(run_path, {}).values())


def follower_pids(run_path: Path) -> list[int]:
    """The processes of the followers, each the root of all it started."""
    return [one.pid for one in followers_of(run_path)]


def _start(
    run_path: Path, name: str, arguments: Sequence[str], environ: Mapping[str, str]
) -> FollowerProcess:
    left = _count_left(run_path.parent)
    if left >= RecordLimits.max_followers_of_ended_runs:
        raise OSError(f"{left} of earlier runs are still at work; run it yourself later")
    _check_interpreter()
    folder = run_path / layout.FOLLOWERS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.exit").unlink(missing_ok=True)
    finish_by = f"flightlog {_shown([one for one in arguments if one != '--follow'])}"
    # -P: a module in the working directory that is called like one of ours must not be taken for it.
    command = [str(folder / name), sys.executable, "-P", "-m", "flightlog", *arguments]
    return _detach(_SCRIPT, command, environ, name, finish_by)


def _detach(
    script: str, arguments: Sequence[str], environ: Mapping[str, str], name: str, finish_by: str
) -> FollowerProcess:
    """What a shell script starts in the background, and says the process id of; it is nobody's child. Raises
    OSError.
    """
    import subprocess

    reader, writer = make_pipe()
    os.set_blocking(reader.fd, False)
    starter = subprocess.Popen(
        [_SHELL, "-c", script, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=writer.fd,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=_environment(environ),
    )
    writer.close()
    try:
        starter.wait(timeout=RecordLimits.follower_start_timeout_s)  # it ends at once
    except subprocess.TimeoutExpired:
        os.killpg(starter.pid, signal.SIGKILL)
        starter.wait()
        raise OSError(f"{_SHELL} took more than {RecordLimits.follower_start_timeout_s:g} seconds") from None
    try:
        said = os.read(reader.fd, 64)  # all it says is one number, which lies in the pipe
    except BlockingIOError:
        said = b""
    finally:
        reader.close()
    if starter.returncode or not said.strip().isdigit():
        raise OSError(f"{_SHELL} ended with {starter.returncode}")
    pid = int(said)
    return FollowerProcess(
        name=name, pid=pid, pid_start=process_start(pid), group=starter.pid, finish_by=finish_by
    )


def start_beside(run_path: Path) -> None:
    """Have a process of its own complete a run that has ended. Never raises.

    It is no child of this process, holds nothing of it open, and records nothing. Where too many are at work,
    or none can be started, the first reader completes the run.
    """
    _bury([])
    _beside[:] = [one for one in _beside if _is_alive(one)]
    # Gevent would fork this process, and wait in a hub.
    too_many = len(_beside) >= RecordLimits.max_completing_processes
    if too_many or threads.is_patched() or threads.hears_of_children():
        return
    try:
        _check_interpreter()
        arguments = [_SHELL, sys.executable, "-P", "-c", _COMPLETE, str(run_path)]
        one = _detach(_SCRIPT_BESIDE, arguments, os.environ, "complete", "")
    except Exception:  # whatever keeps it from starting, the first reader does its work
        log.debug("no process could be started to complete %s", run_path, exc_info=True)
        return
    _beside.append(one)
    _to_bury.append(one)


def _check_interpreter() -> None:
    """A frozen or embedding program is its own `sys.executable`: called with our arguments it would start all
    over.
    """
    if not sys.executable:
        raise OSError("it is not known which program runs Python here")
    if getattr(sys, "frozen", False) or not Path(sys.executable).name.lower().startswith(INTERPRETERS):
        raise OSError(f"{sys.executable} is no Python interpreter")


def _note_left(runs: Path, followers: Sequence[FollowerProcess]) -> None:
    """Note that these go on though their run is over, where whoever records next to it looks."""
    try:
        for one in followers:
            (runs / layout.FOLLOWERS).mkdir(exist_ok=True)
            (runs / layout.FOLLOWERS / f"{os.uname().nodename}.{one.pid}").write_text(f"{one.pid_start}\n")
    except OSError:
        log.debug("followers that go on could not be noted", exc_info=True)


def _count_left(runs: Path) -> int:
    """How many go on here though their run is over; what was noted of others is taken away."""
    left = 0
    for noted in (runs / layout.FOLLOWERS).glob(f"{os.uname().nodename}.*"):
        pid, started = noted.suffix[1:], _read(noted)
        try:
            alive = is_same(process_start(int(pid)), float(started))
        except ValueError:  # being written, or damaged
            alive = False
        left += alive
        if not alive and started:
            noted.unlink(missing_ok=True)
    return left


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What the program was given, less what would make a follower record; and where this very package stands.

    Recording is off: where every interpreter records, as a `sitecustomize` may have it, each follower had one
    of its own.
    """
    passed = {name: value for name, value in environ.items() if name not in NOT_PASSED_ON}
    passed["FLIGHTLOG_TELEMETRY"] = "0"
    root = Path(__file__).parents[2]
    if root.name not in {"site-packages", "dist-packages"}:  # found by a path set in the program, perhaps
        passed["PYTHONPATH"] = os.pathsep.join(filter(None, [passed.get("PYTHONPATH"), str(root)]))
    return passed


def _is_alive(one: FollowerProcess) -> bool:
    return one.pid_start is not None and is_same(process_start(one.pid), one.pid_start)


def _bury(followers: Collection[FollowerProcess]) -> None:
    """Take leave of dead followers that the kernel made children of this process, as it does for a
    container's process 1.

    A number that another process of the program's has by now is not touched.
    """
    _to_bury[:] = [*_to_bury, *followers][-RecordLimits.max_followers_of_ended_runs :]
    for one in [*_to_bury]:
        try:
            stat = parse_process_stat(Path(f"/proc/{one.pid}/stat").read_bytes())
            if one.pid_start != stat.start_ticks:
                _to_bury.remove(one)
            elif stat.state == b"Z" and stat.ppid == os.getpid():
                posix.waitpid(one.pid, os.WNOHANG)
                _to_bury.remove(one)
        except (OSError, ValueError):  # gone, somebody else's, or no such system
            if one in _to_bury:
                _to_bury.remove(one)


def _outcome(run_path: Path, one: FollowerProcess) -> str | None:
    """What there is to be said of a follower; nothing where all has been done."""
    alerts = one.name.startswith(ALERTS)
    if _is_alive(one):
        if alerts:
            return "alerts of the run are still being sent in the background"
        return f"sending the run goes on in the background; if that is cut off, `{one.finish_by}` finishes it"
    folder = run_path / layout.FOLLOWERS
    code = _read(folder / f"{one.name}.exit").strip()
    if code == "0":
        return None
    last = _read(folder / f"{one.name}.log").strip().rpartition("\n")[2].removeprefix("flightlog: ")[:300]
    why = last or (f"exit code {code}" if code else "it was ended from outside")
    if alerts:
        return f"the run was recorded, but not all of its alerts were sent ({why})"
    return f"the run was recorded, but not all of it was sent ({why}); to try again: `{one.finish_by}`"


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""


def _shown(arguments: Sequence[str]) -> str:
    import shlex

    return shlex.join(arguments)
