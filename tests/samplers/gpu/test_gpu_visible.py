"""Which GPUs a process can see, held against a model that was written another way."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.samplers.gpu.driver import Gpu, hides_everything, visible, visible_to_hip

THREE = [Gpu("GPU-aaaa1111"), Gpu("GPU-aaaa2222"), Gpu("GPU-bbbb3333")]
SLICED = [Gpu("GPU-aaaa1111", ["MIG-1111", "MIG-1122"]), Gpu("GPU-bbbb3333")]


@pytest.mark.parametrize(
    ("variable", "places"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("none", []),
        ("0", [0]),
        ("2,1", [2, 1]),
        ("0,2,-1,1", [0, 2]),
        (" 1 , 0 ", [1, 0]),
        ("1gpu,0x", [1, 0]),
        ("0,7,1", [0]),
        ("0,0", []),
        ("1,2,1", []),
        ("0,,1", [0]),
        ("99999999999999999999", []),
        ("GPU-bbbb3333", [2]),
        ("GPU-bb", [2]),
        ("GPU-BBBB", [2]),
        ("GPU-aaaa", []),
        ("GPU-b,GPU-aaaa1", [2, 0]),
        ("GPU-b,GPU-cccc,GPU-aaaa1", [2]),
        ("2,GPU-aaaa1", [2, 0]),
        ("2,GPU-bbbb", []),
        ("bbbb3333", []),
        ("MIG-1111", []),
    ],
)
def test_the_variable_means_what_it_means_to_cuda(variable: str | None, places: list[int]) -> None:
    assert visible(variable, THREE) == [(place, None) for place in places]


@pytest.mark.parametrize(
    ("variable", "found"),
    [
        (None, [(0, 0), (1, None)]),
        ("0", [(0, 0)]),
        ("GPU-aaaa1111", [(0, 0)]),
        ("MIG-1122", [(0, 1)]),
        ("MIG-1122,MIG-1111", [(0, 1), (0, 0)]),
        ("MIG-11", []),
        ("MIG-GPU-aaaa1111/1/0", []),
    ],
)
def test_a_partitioned_gpu_is_seen_by_its_instances(
    variable: str | None, found: list[tuple[int, int | None]]
) -> None:
    assert visible(variable, SLICED) == found


def _model(variable: str, uuids: list[str]) -> list[int]:
    """Every GPU has a set of words that name it; the list ends at the first word that is not in exactly one
    set."""

    def names(word: str, place: int) -> bool:
        word = word.strip()
        digits = "".join(itertools.takewhile(str.isdigit, word))
        if digits:
            return int(digits) == place
        return word[:4] == "GPU-" and uuids[place][: len(word)] == word

    owners = [[place for place in range(len(uuids)) if names(word, place)] for word in variable.split(",")]
    ended = next((n for n, found in enumerate(owners) if len(found) != 1), len(owners))
    chosen = [found[0] for found in owners[:ended]]
    repeats = [n for n, place in enumerate(chosen) if place in chosen[:n]]
    return [] if repeats else chosen


UUIDS = st.lists(st.text("ab1", min_size=3, max_size=3).map("GPU-{}".format), max_size=4, unique=True)
WORDS = st.one_of(
    st.integers(0, 5).map(str),
    st.sampled_from(["-1", "", "x", "none", " 1", "2 ", "0a", "GPU", "MIG-a"]),
    st.text("ab1", max_size=3).map("GPU-{}".format),
)


@given(uuids=UUIDS, words=st.lists(WORDS, max_size=5))
def test_any_variable_gives_what_the_model_gives(uuids: list[str], words: list[str]) -> None:
    variable = ",".join(words)
    found = visible(variable, [Gpu(uuid) for uuid in uuids])
    assert [place for place, _ in found] == _model(variable, uuids)


@given(variable=st.one_of(st.none(), st.text(max_size=20), st.lists(WORDS, max_size=3).map(",".join)))
def test_what_hides_everything_shows_nothing(variable: str | None) -> None:
    if hides_everything(variable):
        assert visible(variable, THREE) == visible(variable, SLICED) == []


@pytest.mark.parametrize(
    ("environ", "places"),
    [
        ({}, [0, 1, 2]),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "1"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": "2,1", "HIP_VISIBLE_DEVICES": "1"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-bbbb3333", "HIP_VISIBLE_DEVICES": "0,1"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_rocm_counts_within_what_its_lower_layer_left(environ: dict[str, str], places: list[int]) -> None:
    assert visible_to_hip(environ, THREE) == places
