"""The place of a process in a distributed job: given, by metadata, by the launcher."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.devices import resolve_distributed_identity

TORCHRUN = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "t"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"}
SLURM = {"SLURM_PROCID": "5", "SLURM_LOCALID": "2", "SLURM_NTASKS": "6", "SLURM_JOB_ID": " 77 "}


def identity(rank=0, local_rank=0, world_size=1, job_id=None):
    return {"job_id": job_id, "rank": rank, "local_rank": local_rank, "world_size": world_size}


@pytest.mark.parametrize(
    ("given_values", "expected"),
    [
        ({}, identity()),
        ({"env": {}}, identity()),
        ({"env": TORCHRUN}, identity(3, 1, 4, "t")),
        ({"env": OPEN_MPI}, identity(2, 0, 3)),
        ({"env": SLURM}, identity(5, 2, 6, "77")),
        ({"env": {**SLURM, **OPEN_MPI}}, identity(2, 0, 3, "77")),
        ({"env": {**SLURM, **OPEN_MPI, **TORCHRUN}}, identity(3, 1, 4, "t")),
        ({"env": {"RANK": "9", **SLURM}}, identity(5, 2, 6, "77")),
        ({"env": {"RANK": "1", "WORLD_SIZE": " 2 "}}, identity(1, 1, 2)),
        ({"env": {"RANK": "1", "LOCAL_RANK": " ", "WORLD_SIZE": "2"}}, identity(1, 1, 2)),
        ({"env": {"SLURM_JOB_ID": "7"}}, identity(job_id="7")),
        ({"env": TORCHRUN, "rank": 2}, identity(2, 1, 4, "t")),
        ({"env": TORCHRUN, "metadata": {"rank": 0, "job_id": "m"}}, identity(0, 1, 4, "m")),
        ({"env": TORCHRUN, "rank": 1, "metadata": {"rank": 0}}, identity(1, 1, 4, "t")),
        (
            {"env": {**TORCHRUN, "RANK": "x"}, "rank": 0, "local_rank": 0, "world_size": 1},
            identity(job_id="t"),
        ),
        ({"rank": 1, "world_size": 3}, identity(1, 1, 3)),
        ({"metadata": {"world_size": 3}, "job_id": "j"}, identity(0, 0, 3, "j")),
    ],
)
def test_explicit_values_count_before_metadata_and_that_before_the_environment(given_values, expected):
    assert resolve_distributed_identity(**given_values) == expected


@pytest.mark.parametrize(
    ("given_values", "said"),
    [
        ({"rank": 1}, "rank must be < world_size"),
        ({"local_rank": 2, "world_size": 2}, "local_rank must be < world_size"),
        ({"rank": -1}, "rank must be >= 0"),
        ({"world_size": 0}, "world_size must be >= 1"),
        ({"rank": "1"}, "rank must be an integer"),
        ({"rank": True}, "rank must be an integer"),
        ({"job_id": 7}, "job_id must be a string"),
        ({"job_id": " "}, "job_id must be a non-empty string"),
        ({"env": {"RANK": "a", "WORLD_SIZE": "1"}}, "rank must be an integer"),
        ({"env": {"RANK": "0", "WORLD_SIZE": "0"}}, "world_size must be >= 1"),
        ({"env": {"RANK": "0", "LOCAL_RANK": "-1", "WORLD_SIZE": "1"}}, "local_rank must be >= 0"),
    ],
)
def test_what_cannot_be_is_refused(given_values, said):
    with pytest.raises(ValueError) as error:
        resolve_distributed_identity(**given_values)
    assert str(error.value) == said


@given(st.integers(1, 100), st.data())
def test_every_possible_place_is_taken_as_it_is(world_size, data):
    rank, local_rank = (data.draw(st.integers(0, world_size - 1)) for _ in range(2))
    found = resolve_distributed_identity(rank=rank, local_rank=local_rank, world_size=world_size)
    assert found == identity(rank, local_rank, world_size)
