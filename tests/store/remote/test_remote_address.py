from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.core.errors import MissingExtra, UsageError
from flightlog.store.remote.objects import open_objects, parse_address, scrub


@pytest.mark.parametrize(
    ("given_", "used"),
    [
        ("s3://bucket/runs", "s3://bucket/runs"),
        (" s3://bucket/runs/ ", "s3://bucket/runs"),
        (
            "abfs://container@account.dfs.core.windows.net/runs",
            "abfs://container@account.dfs.core.windows.net/runs",
        ),
        ("sftp://me@host/data", "sftp://me@host/data"),
        ("memory://runs", "memory://runs"),
        ("/data/runs/", "file:///data/runs"),
    ],
)
def test_an_address_is_used_as_it_is_given_without_slash_at_its_end(given_: str, used: str) -> None:
    assert parse_address(given_) == used


def test_a_path_counts_from_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_address("copies") == f"file://{tmp_path}/copies"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (
            "s3://AKIAABCDEFGHIJKLMNOP:topsecret@bucket/runs",
            "the address s3://…@bucket/runs holds a password",
        ),
        ("abfs://c/runs?sv=2024&sig=topsecret", "the address abfs://c/runs?… holds credentials (sig=…)"),
        ("s3://bucket/runs?X-Amz-Credential=topsecret", "the address s3://bucket/runs?… holds credentials"),
        ("s3://AKIA:a/topsecret+b@bucket", "the address s3://…@bucket holds a password"),
        ("sftp://me:topsecret@host/data", "the address sftp://…@host/data holds a password"),
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(address: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(address)
    assert str(caught.value).startswith(message)
    assert "topsecret" not in str(caught.value)


@pytest.mark.parametrize("address", ["", "  ", "https://example.org/runs", "s3://[bucket/runs"])
def test_what_cannot_be_written_to_is_refused(address: str) -> None:
    with pytest.raises(UsageError):
        parse_address(address)


def test_an_unknown_protocol_is_refused_and_a_missing_client_named_by_the_line_that_installs_it() -> None:
    with pytest.raises(
        UsageError, match=r"nothing here knows nowhere://; use s3://, abfs://, gs:// or a folder"
    ):
        open_objects("nowhere://bucket/runs")
    with pytest.raises(MissingExtra, match=r"gs://bucket/runs needs .*: pip install 'flightlog\[gcs\]'"):
        open_objects("gs://bucket/runs")


SECRET = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789", min_size=12, max_size=30).map(
    lambda t: f"zq{t}qz"
)


@given(
    secret=SECRET,
    before=st.text(max_size=20),
    form=st.sampled_from(
        [
            "s3://user:{}@bucket/x",
            "https://a.blob.core.windows.net/c?sv=1&sig={}",
            "AccountKey={};EndpointSuffix=x",
            "s3://user:a/{}@bucket/x",
            "Authorization: Bearer {}",
            "aws_secret_access_key = {}",
            "X-Amz-Signature={}&x=1",
            "token: {}",
            "password={}",
        ]
    ),
)
def test_no_secret_is_left_in_a_message(secret: str, before: str, form: str) -> None:
    assert secret not in scrub(f"{before} {form.format(secret)} failed", limit=10_000)


def test_a_message_without_secrets_stays_as_it_is_on_one_line_and_bounded() -> None:
    assert scrub("s3://bucket/runs:\n no answer") == "s3://bucket/runs: no answer"
    assert scrub("x" * 500) == "x" * 299 + "…"
