"""Attempts in processes that the Dragon runtime starts, on one node or many. Linux alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from itertools import chain, islice, zip_longest
from typing import Any, Literal

from flightlog.core.errors import MissingExtra, UsageError
from flightlog.engines.contract import PooledEngine, Reports
from flightlog.engines.program import refuse_while_main_is_imported

INSIDE = "DRAGON_MY_PUID"
"""The variable that Dragon sets in every process it runs."""


class DragonEngine(PooledEngine):
    """Runs attempts in processes of the Dragon runtime; the contract of `Engine`, and thread-safe as that
    says.

    The program must have been started by Dragon: `dragon prog.py`, or `dragon -s prog.py` on one machine.
    Dragon runs on Linux alone. Anything else is a `UsageError` that says so.

    There are at most `max_workers` worker processes, by default as many as fit: `processes_per_node`
    (default: the CPUs of the node) on each of the first `nodes` nodes (default: all). `policy` fills one node
    after the other (`block`), or deals workers out among them (`spread`). They are launched as there is work,
    and execute one task at a time each.

    A task over its timeout, or cancelled while it runs, is ended with its process and, on this host, the
    processes below it: SIGTERM, and SIGKILL after `kill_grace_s` seconds. Running tasks may take `timeout_s`
    seconds more when the engine is closed; those that wait are cancelled at once. Workers that are about to
    be ready then are ended once they are: Dragon's runtime does not always survive the end of a process that
    speaks with it.
    """

    def __init__(
        self,
        *,
        nodes: int | None = None,
        max_workers: int | None = None,
        processes_per_node: int | None = None,
        policy: Literal["block", "spread"] = "spread",
        kill_grace_s: float = 2.0,
    ) -> None:
        check_runtime(sys.platform, os.environ)
        for name, value in (
            ("nodes", nodes),
            ("max_workers", max_workers),
            ("processes_per_node", processes_per_node),
        ):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise UsageError(f"{name} is {value!r}; it must be a whole number, 1 or more")
        if policy not in ("block", "spread"):
            raise UsageError(f"policy is {policy!r}; it may be block or spread")
        self._nodes, self._max_workers = nodes, max_workers
        self._per_node, self._policy = processes_per_node, policy
        self._grace_s = kill_grace_s
        super().__init__()

    def start(self, run_path: str | None, reports: Reports) -> None:
        """Begin; workers are launched when there is work."""
        from flightlog.engines.dragon.pool import DragonPool

        self._begin()
        refuse_while_main_is_imported("an engine")
        self._pool = DragonPool(self._slots(), self._grace_s)
        self._pool.start(run_path, reports)
        self._close_at_exit()

    def dumps(self, value: Any) -> bytes:
        """The value as a pickle for workers, which do not import the program."""
        from flightlog.engines.dragon.worker import dumps

        return dumps(value)

    def _slots(self) -> list[int]:
        """The node of each worker that there may be."""
        from dragon.native.machine import Node, System

        from flightlog.engines.dragon.process import one_at_a_time

        with one_at_a_time():
            there: list[int] = list(System().nodes)
            if self._nodes is not None and self._nodes > len(there):
                raise UsageError(f"nodes is {self._nodes}, and Dragon runs on {len(there)}")
            sizes = {node: self._per_node or int(Node(node).num_cpus) for node in there[: self._nodes]}
        return place_workers(sizes, self._policy, self._max_workers)


def place_workers(
    sizes: Mapping[int, int], policy: Literal["block", "spread"], max_workers: int | None
) -> list[int]:
    """The nodes of workers in the order of their launch, for nodes that hold so many each.

    More workers than fit go around again: someone who asks for them gets them.
    """
    lots = [[node] * size for node, size in sizes.items()]
    if policy == "block":
        once = list(chain.from_iterable(lots))
    else:
        once = [node for row in zip_longest(*lots) for node in row if node is not None]
    wanted = len(once) if max_workers is None else max_workers
    return list(islice(chain.from_iterable(once for _ in range(wanted)), wanted))


def check_runtime(platform: str, environ: Mapping[str, str]) -> None:
    """A `UsageError` or `MissingExtra` unless this program runs inside Dragon."""
    if platform != "linux":
        raise UsageError("Dragon runs on Linux alone: choose another provider on this machine")
    from importlib.util import find_spec

    if find_spec("dragon") is None:
        raise MissingExtra("the provider 'dragon' needs Dragon: pip install 'flightlog[dragon]'")
    if INSIDE not in environ:
        raise UsageError(
            "this program was not started by Dragon, which has to be there before it: start it with "
            "`dragon prog.py` in place of `python prog.py`, or with `dragon -s prog.py` on a single machine"
        )
