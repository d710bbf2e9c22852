from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flightlog.record.redaction import (
    REDACTED,
    is_secret_key,
    redact_command,
    redact_mapping,
    redact_text,
)

SECRET_KEYS = """
password passwd pwd passphrase secret client_secret token access_token accessToken auth_tokens api_key apikey
api-key apiKey APIKEY APIKey X-Api-Key access_key AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID private_key credential
credentials authorization Authorization auth basic_auth cookie Set-Cookie session_key connection_string
ConnectionString sas sas_token dsn SENTRY_DSN PassWord PGPASSWORD db_pass AccountKey SharedAccessKey HF_TOKEN
password2 db.password use_auth_token SharedAccessSignature REDISCLI_AUTH
""".split()

HARMLESS_KEYS = """
tokenizer n_tokens max_tokens maxTokens token_count tokens tokens_per_second prompt_tokens pad_token_id eos_token
token_ids per_token_loss author authority authors secretary monkey key keys keyboard public_key primary_key passage
passed n_pass seed pin_memory session_id auth_type auth_method password_file secret_name SharedAccessKeyName
sas7bdat compass bypass name path host
""".split()


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_names_of_secrets_are_recognized_in_any_spelling(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize("key", HARMLESS_KEYS)
def test_names_that_only_look_alike_are_not_secrets(key: str) -> None:
    assert not is_secret_key(key)


# Made up, and split so that no scanner of this repository takes them for real ones.
GITHUB = "ghp_" + "A1b2" * 9
TOKENS = [
    "AKIA" + "IOSFODNN7EXAMPLE",
    "ASIA" + "IOSFODNN7EXAMPLE",
    GITHUB,
    "github_pat_" + "11AAAA_" * 6,
    "glpat-" + "x1Y2" * 5,
    "xoxb-" + "123456789-abcdefghijk",
    "sk-" + "proj-abc123def456ghi789",
    "sk_live_" + "abc123def456",
    "hf_" + "aBcD1234" * 4,
    "AIza" + "SyA1234567" * 4,
    "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
]


@pytest.mark.parametrize("token", TOKENS)
def test_tokens_of_known_shape_are_redacted_wherever_they_stand(token: str) -> None:
    assert redact_text(f"before {token} after") == "before [redacted] after"
    assert redact_text(f"('{token}',)") == "('[redacted]',)"
    assert redact_text(token) == REDACTED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgres://bob:hunter2@db:5432/x", "postgres://bob:[redacted]@db:5432/x"),
        ("redis://:hunter2@cache/0", "redis://:[redacted]@cache/0"),
        ("https://u:p@ss@host/x", "https://u:[redacted]@host/x"),
        ("https://0123456789abcdef0123@host/x.git", "https://[redacted]@host/x.git"),
        ("Authorization: Bearer abc.def", "Authorization: [redacted]"),
        ("curl -H 'Authorization: Basic dXNlcjpw' http://x", "curl -H 'Authorization: [redacted]' http://x"),
        ("sent Bearer abcdef", "sent Bearer [redacted]"),
        ("sent basic dXNlcjpwYXNz", "sent basic [redacted]"),
        ("Cookie: a=b; c=d\nnext", "Cookie: [redacted]\nnext"),
        ("password=abc, user=bob", "password=[redacted], user=bob"),
        ("config: password = abc def", "config: password = [redacted] def"),
        ("pwd=x", "pwd=[redacted]"),
        ('{"password": "a b \\" c", "x": 1}', '{"password": "[redacted]", "x": 1}'),
        ("{'token': 'abc', 'n': 1}", "{'token': '[redacted]', 'n': 1}"),
        ('"{\\"token\\": \\"abc\\"}"', '"{\\"token\\": \\"[redacted]\\"}"'),
        ("connect(password=b'abc')", "connect(password=b'[redacted]')"),
        ("auth=('bob', 'hunter2')", "auth=[redacted]"),
        ("os.environ['DB_PASSWORD'] = 'abc'", "os.environ['DB_PASSWORD'] = '[redacted]'"),
        ("first\\ntoken=abc", "first\\ntoken=[redacted]"),
        ("Command '['x', '--token', 'abc']' failed", "Command '['x', '--token', '[redacted]']' failed"),
        ("run --api-key abc now", "run --api-key [redacted] now"),
        ("x?sv=1&sig=abc%2Bdef&se=3", "x?sv=1&sig=[redacted]&se=3"),
        ("AccountName=me;AccountKey=ab==;X=y", "AccountName=me;AccountKey=[redacted];X=y"),
        (
            "a\n-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nz",
            "a\n[redacted]\nz",
        ),
        ("a -----BEGIN PRIVATE KEY-----\nabc", "a [redacted]"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key = [redacted]"),
    ],
)
def test_secrets_in_a_text_are_redacted_and_the_rest_is_kept(text: str, expected: str) -> None:
    assert redact_text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "room 401 not found",
        "basic understanding of bearer tokens",
        "KeyError: 'token'",
        "token=None, auth=False",
        "the tokenizer has max_tokens=512 and pad_token: '<pad>'",
        "https://example.org:8080/a?b=c&key=3#d",
        "git@example.org:group/project.git",
        "/data/run=3/seed=42/sk-learn-compatible-estimators",
        "password=''",
        "2026-05-20T03:52:00Z task-1: done",
    ],
)
def test_a_text_without_secrets_is_left_as_it_is(text: str) -> None:
    assert redact_text(text) == text


PIECES = st.sampled_from(
    [*TOKENS[:4], "password", "token", "auth", "=", ":", " ", '"', "'", "\\", "\n", "://", "@", "/", ",", ";",
       "&", "?sig=", "Bearer ", "basic ", "--", "[", "]", "(", "{", REDACTED, "x", "Cookie: ", "-----BEGIN ",
       "PRIVATE KEY-----", "None", "eyJ", ".", "-", "sk-", "é", "\udcff"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=200))
@example("x://token=a/b,z:q@c")
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


@given(st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=12, max_size=30).map("x9{}".format))
def test_an_assigned_secret_never_survives(secret: str) -> None:
    for text in (f"password={secret}", f'"api_key": "{secret}"', f"ftp://u:{secret}@h", f"Bearer {secret}"):
        assert secret not in redact_text(f"start {text} end")


HOSTILE = [
    "a", " ", "-", '"', "\\", "=", "sk-", "eyJ", "eyJaaaaa.", "://", "://a:", "a@", "password=", 'password="',
    "password='\\", "token=[", "token={", "token=(", "Bearer ", "basic a", "-----BEGIN PRIVATE KEY-----", "--a ",
    "pwd=x ", "auth: bearer ", "ghp_", "xoxb-", "x://token=a/b,z:q@c ", "key \t", "-----BEGIN " + "A" * 39,
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_repetition_is_redacted_in_linear_time(piece: str) -> None:
    # Quadratic time would run into the suite's timeout.
    assert isinstance(redact_text(piece * (300_000 // len(piece))), str)


def test_a_megabyte_of_hostile_text_is_redacted_in_linear_time() -> None:
    share = 1_000_000 // len(HOSTILE)
    assert isinstance(redact_text("".join(piece * (share // len(piece)) for piece in HOSTILE)), str)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["train", "--password", "a b", "--epochs", "3"], ["train", "--password", REDACTED, "--epochs", "3"]),
        (["x", "--token=a b", "-token", "c"], ["x", "--token=[redacted]", "-token", REDACTED]),
        (["x", "--use-auth", "--verbose"], ["x", "--use-auth", "--verbose"]),
        (["env", "PASSWORD=x y", "cmd"], ["env", "PASSWORD=[redacted]", "cmd"]),
        (["sh", "-c", "TOKEN=x cmd"], ["sh", "-c", "TOKEN=[redacted] cmd"]),
        (["curl", "-H", "X-Api-Key: a b", "u"], ["curl", "-H", "X-Api-Key: [redacted]", "u"]),
        (["curl", "-u", "bob:pw", "http://x"], ["curl", "-u", "bob:[redacted]", "http://x"]),
        (["python", "-u", "train.py"], ["python", "-u", "train.py"]),
        (["ssh", "-p2222", "host"], ["ssh", "-p2222", "host"]),
        (["/usr/bin/mysql", "-psecret", "db"], ["/usr/bin/mysql", "-p[redacted]", "db"]),
        (["sshpass", "-p", "secret", "ssh", "h"], ["sshpass", "-p", REDACTED, "ssh", "h"]),
        (["x", "--max-tokens", "512"], ["x", "--max-tokens", "512"]),
        ([], []),
    ],
)
def test_a_command_keeps_its_arguments_but_not_its_secrets(argv: list[str], expected: list[str]) -> None:
    assert redact_command(argv) == expected


@given(
    st.lists(
        st.text(max_size=30) | st.sampled_from(["--token", "-p", "mysql", "-u", "a:b", "--x=y"]), max_size=8
    )
)
def test_redacting_a_command_twice_is_redacting_it_once(argv: list[str]) -> None:
    once = redact_command(argv)
    assert len(once) == len(argv)
    assert redact_command(once) == once


def test_a_mapping_loses_the_values_of_secret_names_and_secrets_in_the_others() -> None:
    assert redact_mapping({"TOKEN": "abc", "URL": "http://u:p@h", "AUTH": "", "N": "3"}) == {
        "TOKEN": REDACTED,
        "URL": "http://u:[redacted]@h",
        "AUTH": "",
        "N": "3",
    }
