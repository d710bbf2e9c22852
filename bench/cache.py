"""What a lookup costs: the digest of a large array beside the hash alone, and a hit on a small result."""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections.abc import Callable
from time import perf_counter

from bench.timing import interleaved
from flightlog.session.cache.decorator import cacheable
from flightlog.session.cache.store import CacheFolder
from flightlog.session.digest.values import digest_value

ARRAY_BYTES = 100_000_000
ROUNDS = 7
LOOKUPS = 500
RATE = 0.3


def measure() -> dict[str, float]:
    """Seconds for 100 MB by the digest and by SHA-256 alone, their ratio, and microseconds of a hit; medians.

    The hit is of a function with one helper and one global, without a run.
    """
    import numpy as np

    array = np.frombuffer(random.Random(1).randbytes(ARRAY_BYTES), np.float64)
    raw = memoryview(array).cast("B")
    across = array.reshape(1000, -1).T
    with tempfile.TemporaryDirectory() as folder:
        kept = cacheable(store=CacheFolder(folder))(_work)
        kept(3, scale=2.0)
        found = interleaved(
            {
                "sha256_100mb_s": _seconds(lambda: hashlib.sha256(raw).digest()),
                "array_100mb_s": _seconds(lambda: digest_value(array)),
                "array_100mb_transposed_s": _seconds(lambda: digest_value(across)),
                "hit_us": _seconds(lambda: _hits(kept), 1e6 / LOOKUPS),
                "key_us": _seconds(lambda: _keys(kept), 1e6 / LOOKUPS),
            },
            ROUNDS,
        )
    found["array_to_sha256"] = found["array_100mb_s"] / found["sha256_100mb_s"]
    return found


def _helper(x: float) -> float:
    return x * RATE


def _work(x: int, scale: float = 1.0) -> float:
    return _helper(x) * scale


def _hits(kept: Callable[..., float]) -> None:
    for _ in range(LOOKUPS):
        kept(3, scale=2.0)


def _keys(kept: Callable[..., float]) -> None:
    for _ in range(LOOKUPS):
        kept.cache_key(3, scale=2.0)  # type: ignore[attr-defined]


def _seconds(work: Callable[[], object], factor: float = 1.0) -> Callable[[], float]:
    def case() -> float:
        begun = perf_counter()
        work()
        return (perf_counter() - begun) * factor

    return case


if __name__ == "__main__":
    for what, value in measure().items():
        print(f"{what:<28} {value:.4g}")
