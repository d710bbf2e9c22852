from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flightlog.core.redaction import (
    REDACTED,
    is_secret_key,
    kind_of_secret,
    own_patterns,
    redact_command,
    redact_mapping,
    redact_text,
)

SECRET_KEYS = """
password passwd pwd passphrase secret client_secret token access_token accessToken auth_tokens api_key apikey
api-key apiKey APIKEY APIKey X-Api-Key access_key AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID private_key
credential credentials authorization Authorization auth basic_auth cookie Set-Cookie session_key
connection_string ConnectionString sas sas_token dsn SENTRY_DSN PassWord PGPASSWORD db_pass AccountKey
SharedAccessKey HF_TOKEN password2 db.password use_auth_token SharedAccessSignature REDISCLI_AUTH
""".split()

HARMLESS_KEYS = """
tokenizer n_tokens max_tokens maxTokens token_count tokens tokens_per_second prompt_tokens pad_token_id
eos_token token_ids per_token_loss author authority authors secretary monkey key keys keyboard public_key
primary_key passage passed n_pass seed pin_memory session_id auth_type auth_method password_file secret_name
SharedAccessKeyName sas7bdat compass bypass name path host
""".split()


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_names_of_secrets_are_recognized_in_any_spelling(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize("key", HARMLESS_KEYS)
def test_names_that_only_look_alike_are_not_secrets(key: str) -> None:
    assert not is_secret_key(key)


# Made up, and split so that no scanner of this repository takes them for real ones.
GITHUB = "ghp_" + "A1b2" * 9
HEX = "0123456789abcdef" * 4
MIXED = "aB3dE6gH9" * 10
TOKENS = [
    "AKIA" + "IOSFODNN7EXAMPLE",
    "ASIA" + "IOSFODNN7EXAMPLE",
    GITHUB,
    *("gh" + kind + "_" + MIXED[:36] for kind in "ousr"),
    "github_pat_" + "11AAAA_" * 6,
    *("gl" + kind + "-" + MIXED[:20] for kind in ("pat", "dt", "rt", "cbt", "ptt", "ft", "soat", "agent")),
    *("xox" + kind + "-" + "123456789-abcdefghijk" for kind in "abeoprs"),
    "xapp-" + "1-A0123456789-" + HEX[:40],
    "xoxe.xoxp-" + "1-" + MIXED[:40],
    "sk-" + "proj-abc123def456ghi789",
    "sk-" + "ant-api03-" + MIXED[:40],
    "sk_live_" + "abc123def456",
    "rk_live_" + "abc123def456",
    "whsec_" + MIXED[:32],
    "hf_" + "aBcD1234" * 4,
    "npm_" + MIXED[:36],
    "pypi-" + "AgEIcHlwaS5vcmc" + MIXED[:60],
    "AIza" + "SyA1234567" * 4,
    "ya29." + MIXED[:60],
    "GOCSPX-" + MIXED[:28],
    "1//0" + MIXED[:60],
    "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "hvs." + MIXED[:90],
    "hvb." + MIXED[:90],
    "s." + MIXED[:24],
    "dapi" + HEX[:32],
    "dckr_pat_" + MIXED[:27],
    "dckr_oat_" + MIXED[:27],
    "glsa_" + MIXED[:32] + "_" + HEX[:8],
    "glc_" + MIXED[:60],
    "SK" + HEX[:32],
    "AC" + HEX[:32],
    "SG." + MIXED[:22] + "." + MIXED[:43],
    "key-" + HEX[:32],
    HEX[:32] + "-us12",
    "NRAK-" + "ABCDEFGHIJ0123456789ABCDEFG",
    "lin_api_" + MIXED[:40],
    "ntn_" + MIXED[:46],
    "secret_" + MIXED[:43],
    "shpat_" + HEX[:32],
    "sq0atp-" + MIXED[:22],
    "dop_v1_" + HEX,
    "dp.pt." + MIXED[:43],
    "fo1_" + MIXED[:43],
    "fm2_" + MIXED[:80],
    "pscale_tkn_" + MIXED[:43],
    "ATATT3xFfGF0" + MIXED[:80],
    "sntrys_" + MIXED[:80],
    "HRKU-" + MIXED[:60],
    "123456789:AA" + MIXED[:33],
    "M" + MIXED[:25] + "." + MIXED[:6] + "." + MIXED[:38],
    "pat" + MIXED[:14] + "." + HEX,
    "gsk_" + MIXED[:52],
    "tskey-auth-" + MIXED[:30],
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
        ("a\n-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nz", "a\n[redacted]\nz"),
        ("a -----BEGIN PRIVATE KEY-----\nabc", "a [redacted]"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key = [redacted]"),
        (
            "https://hooks.slack.com/services/" + "T01234567/B01234567/abcDEF012345abcDEF012345",
            "https://hooks.slack.com/services/[redacted]",
        ),
        (
            "https://discord.com/api/webhooks/123456789012345678/" + MIXED[:68],
            "https://discord.com/api/webhooks/123456789012345678/[redacted]",
        ),
        (
            "https://acme.webhook.office.com/webhookb2/" + "0a1b2c3d-0000@x/IncomingWebhook/abc/def",
            "https://acme.webhook.office.com/webhookb2/[redacted]",
        ),
        (
            f"https://api.telegram.org/bot123456789:AA{MIXED[:33]}/sendMessage",
            "https://api.telegram.org/bot[redacted]/sendMessage",
        ),
        (f"GET /maps?key={MIXED[:24]}&zoom=3", "GET /maps?key=[redacted]&zoom=3"),
        (f"GET /fn?code={MIXED[:40]}==", "GET /fn?code=[redacted]"),
        ("GET /x?access_token=abc&page=2", "GET /x?access_token=[redacted]&page=2"),
        ("GET /x?page=2&token=abc", "GET /x?page=2&token=[redacted]"),
        ("x?signature=abc", "x?signature=[redacted]"),
        (
            "x?X-Amz-Credential=a%2Fb&X-Amz-Security-Token=c&X-Amz-Signature=d",
            "x?X-Amz-Credential=[redacted]&X-Amz-Security-Token=[redacted]&X-Amz-Signature=[redacted]",
        ),
        (
            "Endpoint=sb://x/;SharedAccessKeyName=me;SharedAccessKey=ab=",
            "Endpoint=sb://x/;SharedAccessKeyName=me;SharedAccessKey=[redacted]",
        ),
        (
            "Server=db;User Id=sa;Password=hunter2;Encrypt=yes",
            "Server=db;User Id=sa;Password=[redacted];Encrypt=yes",
        ),
        ("Driver=x;UID=sa;PWD=hunter2;", "Driver=x;UID=sa;PWD=[redacted];"),
        ("WANDB_API_KEY=" + HEX[:40], "WANDB_API_KEY=[redacted]"),
        ("DD_API_KEY: " + HEX[:32], "DD_API_KEY: [redacted]"),
        ("Authorization: Token 0123abc", "Authorization: [redacted]"),
        ("Set-Cookie: session=abc; Path=/", "Set-Cookie: [redacted]"),
        ('{"private_key": "-----BEGIN x"}', '{"private_key": "[redacted]"}'),
        (
            "machine api.example.org login bob password hunter2",
            "machine api.example.org login bob password [redacted]",
        ),
        (
            "machine a\nlogin bob\npassword hunter2\nmachine b",
            "machine a\nlogin bob\npassword [redacted]\nmachine b",
        ),
        ("default login bob password hunter2", "default login bob password [redacted]"),
        ("db.example.org:5432:sales:bob:hunter2", "db.example.org:5432:sales:bob:[redacted]"),
        ("*:*:*:bob:hunter2", "*:*:*:bob:[redacted]"),
        ("sh -c 'mysql -u bob -phunter2 sales'", "sh -c 'mysql -u bob -p[redacted] sales'"),
        ('bash -lc "mysqldump -phunter2 x > y"', 'bash -lc "mysqldump -p[redacted] x > y"'),
        ('sh -c "mysql -p\\"hunter2;x\\" sales"', 'sh -c "mysql -p[redacted] sales"'),
        ("mysql -p'hunter2; x' sales && ssh -p 22 h", "mysql -p[redacted] sales && ssh -p 22 h"),
        ("mysql --password=hunter2 x", "mysql --password=[redacted] x"),
        ("['mysql', '-phunter2', 'db']", "['mysql', '-p[redacted]', 'db']"),
        ("sh -c 'sshpass -p hunter2 ssh -p 22 h'", "sh -c 'sshpass -p [redacted] ssh -p 22 h'"),
        ("sshpass -phunter2 ssh h", "sshpass -p[redacted] ssh h"),
        ("['sshpass', '-p', 'hunter2', 'ssh']", "['sshpass', '-p', '[redacted]', 'ssh']"),
        ("sh -c 'curl -u bob:hunter2 https://x'", "sh -c 'curl -u bob:[redacted] https://x'"),
        (
            "bash -c \"curl -s --user 'bob:hunter2' https://x\"",
            "bash -c \"curl -s --user 'bob:[redacted]' https://x\"",
        ),
        (
            'ssh h "curl -H \\"Authorization: Bearer abc\\" x"',
            'ssh h "curl -H \\"Authorization: [redacted]\\" x"',
        ),
        ("wget --user bob --password hunter2 x", "wget --user bob --password [redacted] x"),
        (
            "docker login -u bob -p hunter2 reg && docker run -p 80:80 x",
            "docker login -u bob -p [redacted] reg && docker run -p 80:80 x",
        ),
        ("redis-cli -h cache -a hunter2 ping", "redis-cli -h cache -a [redacted] ping"),
        ("mongosh -u bob -p hunter2", "mongosh -u bob -p [redacted]"),
        (
            "aws configure set aws_secret_access_key hunter2",
            "aws configure set aws_secret_access_key [redacted]",
        ),
        ("az login --username bob --password hunter2", "az login --username bob --password [redacted]"),
        ("az login -u bob -p hunter2", "az login -u bob -p [redacted]"),
        ("openssl rsa -in k -passin pass:hunter2", "openssl rsa -in k -passin pass:[redacted]"),
        ("htpasswd -b file bob hunter2", "htpasswd -b file bob [redacted]"),
        ("sh -c 'export FOO_TOKEN=hunter2; ./go'", "sh -c 'export FOO_TOKEN=[redacted]; ./go'"),
        ("setenv FOO_TOKEN hunter2", "setenv FOO_TOKEN [redacted]"),
        ("psql postgresql://bob:hunter2@db/sales", "psql postgresql://bob:[redacted]@db/sales"),
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
        "pwd=/home/x OLDPWD=/scratch/bob/run-1",
        "token='None', auth: \"basic\", --auth kerberos --password=null",
        "auth=basic, proxy_auth=none, http_auth: digest",
        "credentials=~/.aws/credentials, secret=../secrets.yaml",
        "the tokenizer has max_tokens=512 and pad_token: '<pad>'",
        "https://example.org:8080/a?b=c&key=3#d",
        "GET /items?key=beta&sort=name",
        "GET /items?key=learning_rate_schedule",
        "commit 4b825dc642cb6eb9a060e54bf8d69288fbee4904 of main",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "run 123e4567-e89b-12d3-a456-426614174000 ended",
        "span 00f067aa0ba902b7 of trace 4bf92f3577b34da6a3ce929d0e0e4736",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8",
        "/scratch/users/bob/projects/ensemble-2026/outputs/member_0012/restart.nc",
        "sklearn.ensemble.RandomForestClassifier(n_estimators=100)",
        "torch.nn.modules.linear.Linear(in_features=4096, out_features=4096)",
        "key=beta",
        "sort(key=lambda pair: pair[1])",
        "lr=0.001 batch_size=32 max_tokens=512 num_heads=8",
        "chr1:12345:A:T:rs7412",
        "10:20:30:40:50",
        "password=${DB_PASSWORD}",
        "mysql -p${MYSQL_PWD} sales",
        "mysql -u bob -p sales",
        "curl -s -o out.nc https://example.org/data/era5.nc",
        "docker run -p 8080:80 -u 1000:1000 image:latest",
        "ssh -p 2222 login01",
        "rsync -avP results/ login01:/archive/",
        "srun -p gpu -A account123 python train.py",
        "set dataset config to the defaults",
        "git config user.name Bob",
        "login node: login01, password prompt disabled",
        "the machine learning default login page",
        "a basic block, a basic understanding",
        "s.completed_successfully()",
        "gl-transmission-spectra-0001",
        "ACGTACGTACGTACGTACGTACGTACGTACGTAC",
        "MSKGEELFTGVVPILVELDGDVNGHKFSVSGEGEGDATYGKLTLKFICTTGKLPVPWPTLVTTF",
        "InChI=1S/C9H8O4/c1-6(10)13-8-5-3-2-4-7(8)9(11)12/h2-5H,1H3,(H,11,12)",
        "CC(=O)Nc1ccc(O)cc1",
        "flightlog.record.recorder.Recorder._encode_cleaned",
        "preprocess_observations_and_interpolate[member=12]",
        "s3://bucket/runs/run-20260520T035200Z-sir-demo-a1b2c3d4/tasks.jsonl",
        "skipped: sk-learn-contrib-0.24",
        "fold-3-of-10 epoch 17/100 loss=0.0312",
        "git@example.org:group/project.git",
        "/data/run=3/seed=42/sk-learn-compatible-estimators",
        "password=''",
        "2026-05-20T03:52:00Z task-1: done",
    ],
)
def test_a_text_without_secrets_is_left_as_it_is(text: str) -> None:
    assert redact_text(text) == text


PIECES = st.sampled_from(
    [
        *TOKENS[:4],
        "password",
        "token",
        "auth",
        "=",
        ":",
        " ",
        '"',
        "'",
        "\\",
        "\n",
        "://",
        "@",
        "/",
        ",",
        ";",
        "&",
        "?sig=",
        "Bearer ",
        "basic ",
        "--",
        "[",
        "]",
        "(",
        "{",
        REDACTED,
        "x",
        "Cookie: ",
        "-----BEGIN ",
        "PRIVATE KEY-----",
        "mysql ",
        " -p",
        "curl -u a:",
        "login ",
        "?key=",
        "machine ",
        "password ",
        "${X}",
        "None",
        "eyJ",
        ".",
        "-",
        "sk-",
        "é",
        "\udcff",
    ]
)


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
    "a",
    " ",
    "-",
    '"',
    "\\",
    "=",
    "sk-",
    "eyJ",
    "eyJaaaaa.",
    "://",
    "://a:",
    "a@",
    "password=",
    'password="',
    "password='\\",
    "token=[",
    "token={",
    "token=(",
    "Bearer ",
    "basic a",
    "-----BEGIN PRIVATE KEY-----",
    "--a ",
    "mysql -p",
    "mysql -p' ",
    "curl -u a:",
    "docker login -p ",
    "machine a login b ",
    "a:5432:b:c:",
    "config set ",
    "pwd=x ",
    "auth: bearer ",
    "ghp_",
    "xoxb-",
    "x://token=a/b,z:q@c ",
    "key \t",
    "-----BEGIN " + "A" * 39,
]


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
        (["sh", "-c", "mysql -psecret db"], ["sh", "-c", "mysql -p[redacted] db"]),
        (["bash", "-lc", "sshpass -p secret ssh h"], ["bash", "-lc", "sshpass -p [redacted] ssh h"]),
        (["docker", "login", "-u", "bob", "-p", "secret"], ["docker", "login", "-u", "bob", "-p", REDACTED]),
        (
            ["docker", "run", "-p", "80:80", "-u", "1000:1000"],
            ["docker", "run", "-p", "80:80", "-u", "1000:1000"],
        ),
        (["mongosh", "-p", "secret"], ["mongosh", "-p", REDACTED]),
        (["htpasswd", "-b", "f", "bob", "secret"], ["htpasswd", "-b", "f", "bob", REDACTED]),
        (
            ["aws", "configure", "set", "aws_secret_access_key", "abc"],
            ["aws", "configure", "set", "aws_secret_access_key", REDACTED],
        ),
        (["openssl", "rsa", "-passin", "pass:secret"], ["openssl", "rsa", "-passin", "pass:[redacted]"]),
        (["x", "--password", "${PASSWORD}"], ["x", "--password", "${PASSWORD}"]),
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


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"x {GITHUB}", "GitHub token"),
        ("hvs." + MIXED[:90], "Vault token"),
        ("-----BEGIN PRIVATE KEY-----", "private key"),
        ("https://u:p@h/", "password or key in an address"),
        ("Bearer abcdef", "authorization header"),
        ("mysql -phunter2 x", "password on a command line"),
        ("password: x", "value of a secret's name"),
        ("nothing here: at all", None),
    ],
)
def test_what_a_secret_is_can_be_told_without_telling_it(text: str, kind: str | None) -> None:
    assert kind_of_secret(text) == kind


def test_switches_schemes_and_paths_are_no_secrets_whatever_their_name_and_all_else_is() -> None:
    plain = {"pwd": "/home/x", "auth": "Basic", "token": "None", "use_secret": "true", "password": ""}
    secret = {
        "pwd": "/x/hunter2",
        "auth": "basic dXNlcjpodW50ZXIy",
        "token": "/w+J0a9/zz",
        "secret": "/homework7",
    }
    command = ["go", "--auth", "basic", "--token=None", "PWD=/home/x", "--password", "/etc/hunter2 x"]
    assert redact_mapping({**plain, "a": "b"}) == {**plain, "a": "b"}
    assert redact_mapping(secret) == dict.fromkeys(secret, REDACTED)
    assert redact_command(command) == [*command[:-1], REDACTED]


@pytest.fixture
def patterns_of_mine() -> Iterator[None]:
    own_patterns([r"PROJ-\d+", r"patient=(\w+)", r"(a+)+b", "("])
    yield
    own_patterns([])


@pytest.mark.usefixtures("patterns_of_mine")
def test_patterns_of_the_users_own_are_redacted_too_and_of_a_group_its_text_alone() -> None:
    assert redact_text("PROJ-17: patient=bob, aab") == "[redacted]: patient=[redacted], aab"


@pytest.mark.usefixtures("patterns_of_mine")
@pytest.mark.parametrize("before", [0, 2040, 4090, 4094, 9000])
def test_a_pattern_of_the_users_own_finds_what_it_means_anywhere_in_a_long_text(before: int) -> None:
    for line in ("x" * before, "x\n" * (before // 2)):
        text = f"{line} PROJ-1234567 {'y' * 5000}"
        assert redact_text(text) == text.replace("PROJ-1234567", "[redacted]")


@given(st.text("abcdefghijklmnopqrstuvwxyz ._/", max_size=200))
def test_a_text_of_words_and_paths_alone_is_left_as_it_is(text: str) -> None:
    assert redact_text(text) == text
