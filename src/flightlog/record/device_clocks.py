"""How far the clocks of a distributed job's ranks are apart, by the job's own means of communication."""

from __future__ import annotations

from statistics import median
from typing import Any

from flightlog.record.clock import Clock, monotonic_ns

ROUNDS = 9


def offset_to_first_rank(torch: Any, clock: Clock) -> int | None:
    """The clock of this rank minus rank 0's, in ns: the median over rounds in which all ranks leave a barrier
    together.

    As good as ranks leave a barrier together: tens of microseconds on one host, a network's round trip
    otherwise. None without a process group. Every rank must call it; it may raise what the process group
    raises.
    """
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    offsets = []
    for _ in range(ROUNDS):
        distributed.barrier()
        mine = monotonic_ns() + clock.anchor_ns
        sent = torch.tensor([mine], dtype=torch.int64, device=device)
        distributed.broadcast(sent, src=0)
        offsets.append(mine - int(sent.item()))
    return 0 if distributed.get_rank() == 0 else round(median(offsets))
