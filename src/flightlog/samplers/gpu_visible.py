"""Which GPUs a process can see, by the environment variables that CUDA and ROCm obey."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_NUMBER = re.compile(r"\s*\+?(\d+)")


class Gpu:
    """A GPU of the host by the names that the variables may use: its place in the list, UUID, and
    instances.
    """

    __slots__ = ("instances", "uuid")

    def __init__(self, uuid: str | None, instances: Sequence[str] = ()) -> None:
        self.uuid, self.instances = uuid, tuple(instances)


def hides_everything(variable: str | None) -> bool:
    """Whether the variable's first word already ends the list: empty, `-1`, `none` and the like."""
    if variable is None:
        return False
    word = variable.split(",", 1)[0].strip()
    return not (word.startswith(("GPU-", "MIG-")) or _NUMBER.match(word))


def visible(variable: str | None, gpus: Sequence[Gpu]) -> list[tuple[int, int | None]]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` (or `ROCR_VISIBLE_DEVICES`) leaves, in the order frameworks number
    them.

    Each is the place in `gpus`, and the place among its instances where it is one of a partitioned GPU (MIG):
    a partitioned GPU that is named as a whole, or not at all, is seen as its first instance, as CUDA does.

    Words are numbers (what follows the digits is not looked at), UUIDs or unambiguous beginnings of one,
    `MIG-` and the UUID of an instance; `MIG-GPU-<uuid>/<instance>/<compute instance>`, of drivers before 470,
    names nothing. The first word that names nothing, or more than one GPU, ends the list; a GPU named twice
    empties it. Not set is all.
    """
    everything = [(place, 0 if gpu.instances else None) for place, gpu in enumerate(gpus)]
    if variable is None:
        return everything
    chosen: list[tuple[int, int | None]] = []
    for word in variable.split(","):
        found = _named(word.strip(), gpus)
        if found is None:
            break
        if found in chosen:
            return []
        chosen.append(found)
    return chosen


def visible_to_hip(environ: Mapping[str, str], gpus: Sequence[Gpu]) -> list[int]:
    """The places of the GPUs that ROCm's variables leave, in the order frameworks number them.

    `ROCR_VISIBLE_DEVICES` is obeyed first, by the lower layer; `HIP_VISIBLE_DEVICES`, or
    `CUDA_VISIBLE_DEVICES` where that is not set, then counts within what it left.
    """
    left = [place for place, _ in visible(environ.get("ROCR_VISIBLE_DEVICES"), gpus)]
    upper = environ.get("HIP_VISIBLE_DEVICES", environ.get("CUDA_VISIBLE_DEVICES"))
    return [left[place] for place, _ in visible(upper, [gpus[place] for place in left])]


def _named(word: str, gpus: Sequence[Gpu]) -> tuple[int, int | None] | None:
    number = _NUMBER.match(word)
    if number is not None:
        place = int(number[1]) if len(number[1]) < 10 else len(gpus)
        if place >= len(gpus):
            return None
        return place, 0 if gpus[place].instances else None
    if word.startswith("MIG-"):
        named = [
            (place, part)
            for place, gpu in enumerate(gpus)
            for part, uuid in enumerate(gpu.instances)
            if uuid.lower().startswith(word.lower())
        ]
        exact = [(place, part) for place, part in named if gpus[place].instances[part] == word]
        named = exact or named
        return named[0] if len(named) == 1 else None
    if word.startswith("GPU-"):
        places = [
            place for place, gpu in enumerate(gpus) if gpu.uuid and gpu.uuid.lower().startswith(word.lower())
        ]
        if len(places) != 1:
            return None
        return places[0], 0 if gpus[places[0]].instances else None
    return None
