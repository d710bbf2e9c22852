"""The one redactor: every text that leaves the process goes through it, names and command lines included.

Three promises, whatever the input: nothing raises, the time is linear in the length of the text (every
repetition in the patterns here is possessive or bounded; those of `FLIGHTLOG_REDACT` see a limited text at
once, see `core/patterns.py`), and redacting twice is redacting once. Where in doubt a harmless word is lost
rather than a secret kept.

What counts as a secret: a token of a known shape (`_TOKENS`), a value that is assigned to a secret's name,
passwords and signatures in addresses, credentials in headers and on command lines (also inside `sh -c "…"`),
lines of `.netrc` and `.pgpass`, private keys, and what the patterns in `FLIGHTLOG_REDACT` find. What stays: a
reference to a variable (`${DB_PASSWORD}`), digests, UUIDs, and `?key=3`: the value of a parameter that is
only called `key` or `code` must have 16 characters or more, letters and digits among them, to be taken for a
secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest

from flightlog.core.settings import redact_patterns
from flightlog.core.text import words

REDACTED = "[redacted]"
BY_NAME = "value of a secret's name"

_ROUNDS = 8
"""What one pass hides may lay bare something for the next; a text that never settles is withheld whole."""

# --- names of secrets ------------------------------------------------------------------------------------


_CAMEL_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_WORDS = re.compile(r"[A-Za-z]+")

_SECRET = words(
    "password passwords passwd pwd passphrase passcode secret secrets credential credentials creds "
    "authorization auth cookie cookies jwt bearer dsn apikey apikeys accesskey privatekey secretkey "
    "sessionkey accountkey authtoken accesstoken refreshtoken sessiontoken csrftoken xsrftoken sastoken "
    "clientsecret connectionstring connstring connstr sharedaccesssignature userpass dbpass dbpwd sshpass "
    "pgpass"
)
_SECRET_ENDINGS = ("password", "passwd", "passphrase")
_KEYS_OF = words(
    "api access private session account encryption decryption signing master ssh license subscription auth"
    " consumer hmac"
)
_PASS_OF = words("db user mysql postgres pg smtp imap ssh admin root login ldap redis ftp proxy mail")
_PAIRS = frozenset(
    {
        ("connection", "string"),
        ("conn", "string"),
        ("conn", "str"),
        ("access", "signature"),
        ("webhook", "url"),
    }
    | {(word, key) for word in _KEYS_OF for key in ("key", "keys")}
    | {(word, "pass") for word in _PASS_OF}
)
_HOLDS_TOKENS = words("auth access refresh api secret bearer session id oauth csrf personal")
_TEXT_TOKEN = words("pad eos bos unk cls sep mask special next first last per start end image prompt stop")
"""Words before `token` where it is a piece of text and not a key."""
_TOKEN_PART = words("id ids embedding embeddings dropout loss accuracy dim mask text")
_COUNTED = words("n num number count max min total avg mean")
"""First words of names that count things."""
_ABOUT = words(
    "count counts length len limit size budget rate ratio type types method mode name names file files path "
    "dir enabled required policy expiry expires expiration ttl version provider scheme status error errors "
    "class index idx position positions usage"
)
"""Last words of names that hold something about a secret and not the secret."""
_SAS_PART = words("token url uri key string")


def is_secret_key(key: str) -> bool:
    """Whether a value of this name is a secret: `api_key`, `dbPassword`, `X-Auth-Token`, but not
    `n_tokens`.
    """
    return _known_key(key) if len(key) <= 64 else _decide(key)


def is_secret(key: str, value: str) -> bool:
    """Whether a value is a secret by its name: not where it is empty, a switch, a scheme such as `basic`, or
    plainly a path.
    """
    return bool(value) and is_secret_key(key) and not _is_plain(value)


def _is_plain(value: str) -> bool:
    return value.lower() in _NO_SECRET or (value[:1] in "/~." and _PATH().match(value) is not None)


def _decide(key: str) -> bool:
    camel = [word.lower() for word in _CAMEL_WORDS.findall(key)]
    plain = [word.lower() for word in _WORDS.findall(key)]
    return _names_secret(camel) or (plain != camel and _names_secret(plain))


_known_key = lru_cache(maxsize=4096)(_decide)


def _names_secret(name: list[str]) -> bool:
    if not name or name[0] in _COUNTED or name[-1] in _ABOUT:
        return False
    for before, word, after in zip(["", *name], name, [*name[1:], ""], strict=False):
        if word in _SECRET or word.endswith(_SECRET_ENDINGS) or (word, after) in _PAIRS:
            return True
        if word == "token" and before not in _TEXT_TOKEN and after not in _TOKEN_PART:
            return True
        if word == "tokens" and before in _HOLDS_TOKENS:
            return True
        if word == "sas" and (not after or after in _SAS_PART):
            return True
    return False


# --- secrets in a text -----------------------------------------------------------------------------------


class _Pattern:
    """A pattern that is compiled when it is first used: all of them would be most of the time of an
    import.
    """

    def __init__(self, source: str, flags: int = 0) -> None:
        self._source, self._flags = source, flags
        self._compiled: re.Pattern[str] | None = None

    def __call__(self) -> re.Pattern[str]:
        if self._compiled is None:
            self._compiled = re.compile(self._source, self._flags)
        return self._compiled


_NAME_STEMS = tuple(
    words("pass pwd secret token key cred auth cookie sas dsn conn jwt bearer access webhook")
)
"""One of these is part of every secret's name, in lower case."""

_BEHIND = {"^": r"(?<![A-Za-z0-9])", "~": r"(?<![\w-])"}
_TOKENS = r"""
    AWS_key AKIA,ASIA ^(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])
    GitHub_token ghp_,gho_,ghu_,ghs_,ghr_ ^gh[pousr]_[A-Za-z0-9]{20,}+
    GitHub_token_ github_pat_ ~github_pat_\w{20,}+
    GitLab_token gl ~gl(?:pat|dt|rt|cbt|ptt|ft|soat|ffct|imt|agent|oas)-[\w.-]{16,}+
    Hugging_Face_token hf_,api_org_ ^(?:hf_[A-Za-z0-9]{20,}+|api_org_[A-Za-z0-9]{30,}+)
    npm_token npm_ ^npm_[A-Za-z0-9]{30,}+
    PyPI_token pypi- ~pypi-[\w-]{40,}+
    Stripe_key k_live_,k_test_ ^[sr]k_(?:live|test)_[A-Za-z0-9]{10,}+
    Stripe_webhook_secret whsec_ ^whsec_[A-Za-z0-9+/=]{16,}+
    Slack_token xox,xapp- ~(?:xox[a-z](?:\.xox[a-z])?-[\w-]{8,}+|xapp-[\w-]{8,}+)
    API_key sk- ~sk-(?=[A-Za-z_-]*+[0-9])[\w-]{16,}+
    Google_key AIza,ya29. (?<![\w/-])(?:AIza[\w-]{30,}+|ya29\.[\w-]{20,}+)
    Google_key_ GOCSPX-,1//0 (?<![\w/-])(?:GOCSPX-[\w-]{20,}+|1//0[\w-]{35,}+)
    JWT eyJ ~eyJ[\w-]{5,}+\.[\w-]{5,}+\.[\w-]*+
    Vault_token hvs.,hvb.,hvr. ~hv[sbr]\.[\w-]{20,}+
    Vault_token_ s. (?<![\w.-])s\.(?=[A-Za-z]{0,23}[0-9])(?=[a-z0-9]{0,23}[A-Z])[A-Za-z0-9]{24}(?![\w.])
    Databricks_token dapi ^dapi[0-9a-f]{32}(?![0-9a-f])(?:-[0-9])?
    Docker_token dckr_ ^dckr_[po]at_[\w-]{20,}+
    Grafana_token glsa_,glc_ ^(?:glsa_\w{20,}+|glc_[A-Za-z0-9+/=]{20,}+)
    Twilio_key SK,AC ^(?:SK|AC)[0-9a-f]{32}(?![0-9A-Za-z])
    SendGrid_key SG. ~SG\.[\w-]{16,}+\.[\w-]{16,}+
    Mailgun_key key- ~key-[0-9a-f]{32}(?![0-9A-Za-z])
    Mailchimp_key -us ^[0-9a-f]{32}-us[0-9]{1,2}(?![0-9A-Za-z])
    New_Relic_key NRAK-,NRII-,NRJS-,NRAL ^(?:NR(?:AK|II|JS)-\w{15,}+|[0-9a-f]{36}NRAL(?!\w))
    Linear_key lin_ ^lin_(?:api|oauth)_[A-Za-z0-9]{20,}+
    Notion_token ntn_,secret_ ^(?:ntn_[A-Za-z0-9]{30,}+|secret_[A-Za-z0-9]{43}(?![A-Za-z0-9]))
    Shopify_token shp ^shp(?:at|ca|pa|ss)_[0-9A-Fa-f]{20,}+
    Square_token sq0,EAAA ~(?:sq0[a-z]{3}-[\w-]{20,}+|EAAA[\w-]{50,}+)
    DigitalOcean_token _v1_ ^do[opr]_v1_[0-9a-f]{32,}+
    Doppler_token dp. ~dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]{1,40}\.)?[A-Za-z0-9]{30,}+
    Fly_token fo1_,fm1,fm2 ^(?:fo1_[\w-]{20,}+|fm[12][ar]?_[A-Za-z0-9+/=_-]{20,}+)
    PlanetScale_token pscale_ ^pscale_(?:tkn|pw|oauth)_[\w.-]{20,}+
    Atlassian_token ATATT,ATCTT ^AT[AC]TT[\w=-]{40,}+
    Sentry_token sntry ^sntry[su]_[\w+/=-]{30,}+
    Heroku_key HRKU- ^HRKU-[\w-]{30,}+
    Telegram_token :AA (?<![0-9])[0-9]{6,12}:AA[\w-]{30,}+
    Discord_token . ~[MNO][A-Za-z0-9_-]{23,27}\.[\w-]{6}\.[\w-]{27,}+
    Postman_key PMAK- ^PMAK-[0-9a-f]{24}-[0-9a-f]{34}
    Airtable_token pat ^pat[A-Za-z0-9]{14}\.[0-9a-f]{64}
    Terraform_token .atlasv1. ^[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,}+
    Supabase_token sbp_,sb_secret_ ^(?:sbp_[0-9a-f]{40}|sb_secret_[\w-]{20,}+)
    Model_API_key gsk_,r8_,xai-,pplx- ^(?:gsk_|r8_|xai-|pplx-)\w{20,}+[\w-]*+
    Model_API_key_ pcsk_,nvapi-,wandb_v1_,lsv2_ ^(?:pcsk_|nvapi-|wandb_v1_|lsv2_(?:pt|sk)_)\w{20,}+[\w-]*+
    Tailscale_key tskey- ^tskey-[a-z]{1,12}-[\w-]{10,}+
    Age_key AGE-SECRET-KEY- AGE-SECRET-KEY-1[0-9A-Z]{20,}+
"""
"""Tokens that are known by their shape, one per line: what they are, pieces of which each of them has one,
and the pattern, in which `^` at the beginning means "not behind a letter or digit", and `~` "nor behind `_`
or `-`".

`_holds_token` is true of every text that holds one: each has a word of 15 characters or more.
"""
_SHAPES = [
    (name, stems.split(","), _BEHIND.get(pattern[0], pattern[0]) + pattern[1:])
    for name, stems, pattern in map(str.split, _TOKENS.strip().splitlines())
]
_SHAPE_STEMS = tuple(dict.fromkeys(stem for _, stems, _ in _SHAPES for stem in stems))

_PEM = _Pattern(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r".*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
_AUTHORITY = _Pattern(r"""://([^\s/?\#"'<>\\]++)""")
_SIGNED = _Pattern(
    r"""((?:[?&]|SharedAccessSignature[ ])(?:sig|signature|"""
    r"""x-(?:amz|goog)-(?:signature|credential|security-token))=)"""
    r"""[^\s&\#"'<>\\]++""",
    re.IGNORECASE,
)
_SHAPE = _Pattern("|".join(f"(?P<{name}>{pattern})" for name, _, pattern in _SHAPES))
_LONG = _Pattern(r"(?<![\w-])[\w-]{15,}+|eyJ")
_MIXED = _Pattern(r"[A-Z0-9]")
_HEX = "0123456789abcdef-_"
_WEBHOOK = _Pattern(
    r"""(hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/"""
    r"""|discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks/[0-9]{1,24}/"""
    r"""|(?:webhook\.office\.com/webhookb2|outlook\.office(?:365)?\.com/webhook)/"""
    r"""|hooks\.zapier\.com/hooks/catch/|maker\.ifttt\.com/trigger/\w{1,100}/with/key/)"""
    r"""[^\s"'<>\\]++""",
    re.IGNORECASE,
)
_PARAMETER = _Pattern(r"""([?&;](?:key|code)=)([^\s&;\#"'<>\\]++)""", re.IGNORECASE)
_RANDOM = _Pattern(r"(?=[^0-9]*+[0-9])(?=[^A-Za-z]*+[A-Za-z]).{16,}\Z")
_SCHEME = _Pattern(r"""(?<!\w)(bearer|basic)([ \t]{1,8})([^\s"',;\\]++)""", re.IGNORECASE)
_BEARER_WORDS = words("token tokens auth authentication authorization scheme header is of in and or")
_ENCODED = _Pattern(r"[A-Za-z0-9+/_-]{6,}+={0,2}\Z")
_PLAIN_WORD = _Pattern(r"[A-Za-z][a-z]*+\Z|[A-Z]++\Z")

_ASSIGNMENT = _Pattern(
    r"""(?<![\w.-])(?:"""
    r"""([\w.-]++)(?:\\{0,4}["'])?\]?[ \t]{0,8}(:=|=>|={1,3}|:)[ \t]{0,8}"""
    r"""|(--[A-Za-z][\w.-]*+)(?:\\{0,4}["'])?,?[ \t]{1,8}(?!-))"""
)
"""`key=`, `key: `, `"key": `, `["key"] = `, `--key value` and `'--key', 'value'`, up to the value."""
_OPENING = _Pattern(r"""[bBrRuUfF]{0,2}(\\{0,4})(\"\"\"|'''|["'])""")
_INSIDE = {'"': _Pattern(r"""(?:[^"\\\r\n]|\\.)*+"""), "'": _Pattern(r"""(?:[^'\\\r\n]|\\.)*+""")}
_INSIDE_ESCAPED = {'"': _Pattern(r"""[^"\r\n]*+"""), "'": _Pattern(r"""[^'\r\n]*+""")}
_BARE = _Pattern(
    r"""(?:\([^()\r\n]*+\)?|\[[^\[\]\r\n]*+\]?|\{[^{}\r\n]*+\}?"""
    r"""|(?:bearer|basic|token|digest|negotiate|apikey)[ \t]{1,8}(?=[^\s"',;&]))?[^\s"',;&]*+""",
    re.IGNORECASE,
)
_HEADER = _Pattern(r"""[^\r\n"']*+""")
_HEADER_KEYS = ("authorization", "cookie")
_VARIABLE = _Pattern(r"(?:\$\{[A-Za-z_]\w*\}|\$[A-Z][A-Z0-9_]{2,})[)\]},;]*\Z")
"""A reference to a variable, as shells and manifests write it, and whatever closes around it."""
_NO_SECRET = words(
    "none null nil true false undefined yes no on off 0 1 basic bearer digest kerberos negotiate ntlm"
)
"""Values that no secret has: switches, what stands for nothing, and ways to authenticate."""
_PATH = _Pattern(
    r"(?:/(?:home|root|Users|usr|opt|etc|var|tmp|mnt|media|srv|run|data|scratch|work|project|projects|app"
    r"|workspace|dev|shm)"
    r"(?=/|\Z)|~(?=/)|\.{1,2}(?=/))[\w./@+-]*+\Z"
)
"""A path below a folder that is known. Any text with slashes would not do: keys are often written in
base64."""


def redact_text(text: str) -> str:
    """The text with every secret that can be recognized in it replaced by `REDACTED`."""
    if not may_hold_secret(text):
        return text
    for _ in range(_ROUNDS):
        again = _redact_once(text)
        if again == text:
            return text
        text = again
    return REDACTED


def may_hold_secret(text: str) -> bool:
    """Whether a closer look is needed: False for most names, at a fraction of the cost of looking closely."""
    if "=" in text or ":" in text or " -" in text or "--" in text or "'-" in text:
        return True
    if "word" in text or "earer" in text or "asic" in text or _own:
        return True
    if "set" in text and ("setenv " in text or "config" in text):
        return True
    return len(text) > 15 and _holds_token(text)


def _holds_token(text: str) -> bool:
    """Whether a word is long enough for a token, and neither all in lower case, as in names, nor a digest or
    an id.
    """
    if max(map(len, text.split()), default=0) < 15:  # a fraction of the pattern's time
        return False
    for word in _LONG().finditer(text):  # noqa: SIM110 - `any` over a generator takes twice as long
        if _MIXED().search(word.group()) and word.group().strip(_HEX):
            return True
    return False


def kind_of_secret(text: str) -> str | None:
    """What the first secret in a text is, in words, such as `GitHub token`; None where there is none."""
    if not may_hold_secret(text):
        return None
    found = _SHAPE().search(text)
    if found is not None and found.lastgroup is not None:
        return found.lastgroup.strip("_").replace("_", " ")
    lowered = text.lower()
    return next((kind for kind, step in _STEPS if step(text, lowered) != text), None)


def _redact_once(text: str) -> str:
    lowered = text.lower()
    for _, step in _STEPS:
        text = step(text, lowered)
    return text


# Each step asks for substrings first: that is far cheaper than a pattern, and clears the common text without
# secrets.


def _hide_private_keys(text: str, lowered: str) -> str:
    return _PEM().sub(REDACTED, text) if "private key" in lowered else text


def _hide_addresses(text: str, lowered: str) -> str:
    if "://" in text:
        text = _AUTHORITY().sub(_hide_userinfo, text)
    if "sig" in lowered or "-credential=" in lowered or "-token=" in lowered:
        text = _SIGNED().sub(_hide_signature, text)
    if "hook" in lowered or "ifttt" in lowered:
        text = _WEBHOOK().sub(_hide_signature, text)
    if "key=" in lowered or "code=" in lowered:
        text = _PARAMETER().sub(_hide_parameter, text)
    return text


def _hide_shapes(text: str, _lowered: str) -> str:
    return _SHAPE().sub(REDACTED, text) if _holds_token(text) and _holds_any(text, _SHAPE_STEMS) else text


def _hide_schemes(text: str, lowered: str) -> str:
    return _SCHEME().sub(_hide_scheme, text) if "bearer" in lowered or "basic" in lowered else text


def _hide_assignments(text: str, lowered: str) -> str:
    if ("=" in text or ":" in text or "--" in text) and _holds_any(lowered, _NAME_STEMS):
        return _hide_assigned(text)
    return text


def _hide_own(text: str, _lowered: str) -> str:
    for pattern in _own:
        pieces = [_hide_matches(*pattern, piece) for piece in text.split(REDACTED)]
        text = REDACTED.join(pieces)
    return text


def _holds_any(text: str, stems: tuple[str, ...]) -> bool:
    for stem in stems:  # noqa: SIM110 - `any` takes twice as long, and this runs for every tag
        if stem in text:
            return True
    return False


def _hide_userinfo(found: re.Match[str]) -> str:
    userinfo, at, host = found.group(1).rpartition("@")
    user, colon, password = userinfo.partition(":")
    if at and colon and password:
        return f"://{user}:{REDACTED}@{host}"
    if at and len(user) >= 16:  # a token in the place of a name, as in the remotes of git
        return f"://{REDACTED}@{host}"
    return found.group()


def _hide_signature(found: re.Match[str]) -> str:
    return found.group(1) + REDACTED


def _hide_parameter(found: re.Match[str]) -> str:
    secret = _RANDOM().match(found.group(2)) is not None
    return found.group(1) + REDACTED if secret else found.group()


def _hide_scheme(found: re.Match[str]) -> str:
    scheme, space, value = found.groups()
    if scheme.lower() == "bearer":
        secret = value.lower().rstrip(".:)") not in _BEARER_WORDS
    else:  # "basic" is an English word too: what follows must look encoded
        secret = _ENCODED().match(value) is not None and _PLAIN_WORD().match(value) is None
    return f"{scheme}{space}{REDACTED}" if secret else found.group()


def _hide_assigned(text: str) -> str:
    """Redact what is assigned to a secret name."""
    parts: list[str] = []
    copied = position = 0
    assignment = _ASSIGNMENT()
    while found := assignment.search(text, position):
        position = found.end()
        key = (found.group(1) or found.group(3))[-128:]
        # In the repr of a text a name at the start of a line follows a written-out "\n".
        escaped = text[found.start() - 1 : found.start()] == "\\"
        if not (is_secret_key(key) or (escaped and is_secret_key(key[1:]))):
            continue
        start, end = _value_span(text, position, found.group(2) == ":" and key.lower().endswith(_HEADER_KEYS))
        if start < end:
            parts += (text[copied:start], REDACTED)
            copied = position = end
    parts.append(text[copied:])
    return "".join(parts)


def _value_span(text: str, position: int, header: bool) -> tuple[int, int]:
    """Where the secret begins and ends; the same place twice if there is none."""
    opening = _OPENING().match(text, position)
    if opening is not None:
        quote = opening.group(2)[0]
        if opening.group(1):
            inside = _INSIDE_ESCAPED[quote]().match(text, opening.end())
            assert inside is not None
            return inside.start(), inside.start() + len(inside.group().rstrip("\\"))
        inside = _INSIDE[quote]().match(text, opening.end())
        assert inside is not None
        keep = _VARIABLE().match(inside.group()) or _is_plain(inside.group())
        return (inside.end(), inside.end()) if keep else inside.span()
    bare = (_HEADER if header else _BARE)().match(text, position)
    assert bare is not None
    value = bare.group().rstrip().rstrip("\\" if header else "")
    if _VARIABLE().match(value):
        return position, position
    if _is_plain(value.rstrip(")]}")) or not value.strip(")]}>*.…"):
        return position, position
    return position, position + len(value)


# --- command lines ---------------------------------------------------------------------------------------

_VALUE = r"""(?:(?:\\{0,4}(?:"[^"\r\n]*+"|'[^'\r\n]*+'))++[^\s"',;|&]*+|[^\s"',;|&]++)"""
"""One word of a shell's: quoted pieces together, or up to a blank or a quote around it all."""
_BETWEEN = r"""(?:=|\\{0,4}["']?,?[ \t]{1,8}\\{0,4}["']?)"""
"""From a flag to its value; in the text of a list, quotes and a comma stand between."""
_FLAG = r"""(?<=[\s"',\\])"""


def _flag(names: str, *, glued: bool = False, apart: bool = True) -> _Pattern:
    between = "|".join([_BETWEEN] * apart + ["(?=[^-\\s\"',])", "(?=[\"'][^\\s,])"] * glued)
    return _Pattern(rf"({_FLAG}(?:{names})(?:{between}))({_VALUE})")


_USER = _Pattern(rf"({_FLAG}(?:-u|-U|--user|--proxy-user){_BETWEEN}?[\"']?[^\s:\"',/]*+:)([^\s\"',;|&]++)")
_FLAGS = (
    ("mysql mysqldump mysqladmin mysqlimport mariadb mariadb-dump", "-p", "", ""),
    ("sshpass", "-p", "-p", ""),
    ("redis-cli", "", "-a --pass", ""),
    ("mongo mongosh mongodump mongorestore mongoimport mongoexport", "", "-p", ""),
    ("docker podman nerdctl helm oc az crane", "", "-p", "login"),
    ("ldapsearch ldapadd ldapmodify", "-w", "-w", ""),
    ("zip unzip", "-P", "-P", ""),
)
"""Programs, their flags that a password is glued to, those that it follows, and a word that must stand there,
too."""
_ARGUMENT_FLAGS = {
    name: (frozenset(glued.split()), frozenset(apart.split()))
    for names, glued, apart, _ in _FLAGS
    for name in names.split()
}
_PASSWORD_FLAGS: dict[str, tuple[str, _Pattern]] = {
    **{
        name: (needed, _flag("|".join((apart or glued).split()), glued=bool(glued), apart=bool(apart)))
        for names, glued, apart, needed in _FLAGS
        for name in names.split()
    },
    **dict.fromkeys(("curl", "http", "https", "wget"), ("", _USER)),
    "openssl": ("", _Pattern(rf"({_FLAG}-pass(?:in|out)?{_BETWEEN}pass:)({_VALUE})")),
    "smbclient": ("", _Pattern(rf"({_FLAG}-U{_BETWEEN}?[^\s%\"',]++%)({_VALUE})")),
    "lftp": ("", _Pattern(rf"({_FLAG}-u{_BETWEEN}?[^\s,\"']++,)({_VALUE})")),
    "htpasswd": (
        " -",
        _Pattern(rf"({_FLAG}-\w*b\w*(?:{_BETWEEN}{_VALUE}){{1,2}}?{_BETWEEN})({_VALUE})(?=[\s\"']*+\Z)"),
    ),
}
"""Programs that take a password where others take a port or a path: a word that must follow, and where it
stands."""
_PROGRAM_STEMS = tuple(dict.fromkeys(name[:4] for name in _PASSWORD_FLAGS))
_PROGRAM = _Pattern(
    r"""(?<![\w.-])("""
    + "|".join(sorted(_PASSWORD_FLAGS, key=len, reverse=True))
    + r""")(?=[\\"',]{0,4}[ \t])"""
)
_COMMAND_END = _Pattern(r"[;|&\n]")
_SET = _Pattern(
    rf"""((?<!\w)(?:configure|config|setenv)[ \t]++(?:set[ \t]++)?"""
    rf"""(?:--[\w-]++[ \t]++)?([\w.-]++)[ \t]++)({_VALUE})"""
)
_NETRC = _Pattern(
    r"""((?<!\w)(?:machine[ \t]{1,8}\S++|default)\s{1,8}(?:(?:login|account)[ \t]{1,8}\S++\s{1,8}){0,2}"""
    r"""password[ \t]{1,8}|(?<!\w)login[ \t]{1,8}\S++\s{1,8}password[ \t]{1,8})([^\s"']++)"""
)
_PGPASS = _Pattern(
    r"""(^[ \t]*+[\w.*-]++:(?:54[0-9]{2}|6432|\*):[^\s:]++:[^\s:]++:)([^\s:]++)(?=[ \t]*+$)""", re.MULTILINE
)


def _hide_commands(text: str, lowered: str) -> str:
    if (" -" in text or "'-" in text) and _holds_any(lowered, _PROGRAM_STEMS):
        text = _hide_flags(text)
    if "set" in text and ("setenv " in text or "config" in text):
        text = _SET().sub(_hide_setting, text)
    if "password" in text and ("machine" in text or "login" in text or "default" in text):
        text = _NETRC().sub(_hide_second, text)
    if text.count(":") >= 4:
        text = _PGPASS().sub(_hide_second, text)
    return text


def _hide_flags(text: str) -> str:
    """Redact the passwords that known programs are given; each up to the next program, or the end of its
    command.
    """
    programs = list(_PROGRAM().finditer(text))
    parts: list[str] = []
    copied = 0
    for found, following in zip_longest(programs, programs[1:]):
        if found.end() < copied:
            continue
        stop = following.start() if following else len(text)
        end = _COMMAND_END().search(text, found.end(), stop)
        needed, flags = _PASSWORD_FLAGS[found.group(1)]
        # The value may hold what ends a command, in quotes: the flag has to stand before, and not all of the
        # value.
        limit = end.start() if end else stop
        segment = text[found.end() : stop]
        if needed and needed not in text[found.end() : limit]:
            continue
        hit = flags().search(segment)
        if hit is None or found.end() + hit.start(1) >= limit or _VARIABLE().match(hit.group(2).strip("\"'")):
            continue
        parts += (text[copied : found.end() + hit.start(2)], REDACTED)
        copied = found.end() + hit.end(2)
    parts.append(text[copied:])
    return "".join(parts)


def _hide_second(found: re.Match[str]) -> str:
    return found.group() if _VARIABLE().match(found.group(2)) else found.group(1) + REDACTED


def _hide_setting(found: re.Match[str]) -> str:
    secret = is_secret_key(found.group(2)) and not _VARIABLE().match(found.group(3))
    return found.group(1) + REDACTED if secret else found.group()


_NAMED_ARGUMENT = _Pattern(r"(-{0,2}[A-Za-z_][\w.-]*+)(=|:[ \t]*+)(.+)", re.DOTALL)
_USER_FLAGS = frozenset({"-u", "-U", "--user", "--proxy-user"})
_IDS = _Pattern(r"[0-9]+:[0-9]+\Z")


def redact_command(argv: Sequence[str]) -> list[str]:
    """The arguments with passwords, tokens and headers redacted; as many as there were, in their order.

    `--token X`, `--token=X`, `TOKEN=X`, `Authorization: X`, `-u name:X`. A bare `-pX` is left as it is, as it
    means a port or a path to most programs, unless the program before it is known to read a password there.
    """
    result: list[str] = []
    before, previous = "", ""
    nothing: frozenset[str] = frozenset()
    glued = apart = nothing
    waiting = ""
    for position, argument in enumerate(argv):
        program = argument.rpartition("/")[2]
        if program in _PASSWORD_FLAGS:
            waiting = _PASSWORD_FLAGS[program][0]
            glued, apart = _ARGUMENT_FLAGS.get(program, (nothing, nothing))
        elif waiting and argument == waiting:
            waiting = ""
        named = before in {"set", "config", "setenv"} and is_secret_key(previous) and argument[:1] != "-"
        if named or (position == len(argv) - 1 and _is_htpasswd(argv)):
            result.append(REDACTED)
        elif waiting:
            result.append(_redact_argument(argument, previous, nothing, nothing))
        else:
            result.append(_redact_argument(argument, previous, glued, apart))
        before, previous = previous, argument
    return result


def _is_htpasswd(argv: Sequence[str]) -> bool:
    called = len(argv) > 3 and argv[0].rpartition("/")[2] == "htpasswd"
    return called and argv[1].startswith("-") and "b" in argv[1]


def _redact_argument(argument: str, previous: str, glued: frozenset[str], apart: frozenset[str]) -> str:
    flag = previous.startswith("-") and "=" not in previous
    if flag and argument and not argument.startswith("--"):
        if previous in apart or (len(previous) > 2 and is_secret_key(previous)):
            return argument if _VARIABLE().match(argument) or _is_plain(argument) else REDACTED
        if previous in _USER_FLAGS and "://" not in argument and not _IDS().match(argument):
            name, colon, password = argument.partition(":")
            return f"{name}:{REDACTED}" if colon and password else redact_text(argument)
    if previous == "-c":  # a whole program for a shell or an interpreter
        return redact_text(argument)
    if argument.startswith(("pass:",)) and previous in {"-pass", "-passin", "-passout"}:
        return f"pass:{REDACTED}"
    if argument[:2] in glued and len(argument) > 2 and not argument.startswith("--"):
        return argument[:2] + REDACTED
    named = _NAMED_ARGUMENT().fullmatch(argument)
    if (
        named is not None
        and is_secret(named.group(1)[-128:], named.group(3))
        and not _VARIABLE().match(named.group(3))
    ):
        return f"{named.group(1)}{named.group(2)}{REDACTED}"
    return redact_text(argument)


# --- mappings and whole documents ------------------------------------------------------------------------


def redact_mapping(mapping: Mapping[str, str]) -> dict[str, str]:
    """The mapping with the values of secret names redacted whole, and secrets inside the others' values."""
    return {
        key: (REDACTED if is_secret(key, value) else redact_text(value)) for key, value in mapping.items()
    }


# --- patterns of the user's own --------------------------------------------------------------------------

_own: list[tuple[re.Pattern[str], int]] = []
"""Each pattern, and how many characters it may see at once."""


def own_patterns(patterns: Sequence[str]) -> bool:
    """Take these patterns in addition to the known kinds; whether they are others than before.

    Those that cannot be used are passed over, see `patterns.pattern_problem`.
    """
    before = list(_own)
    fresh: list[tuple[re.Pattern[str], int]] = []
    if patterns:
        from flightlog.core.patterns import pattern_problem, piece_length  # few have patterns of their own

        for pattern in patterns:
            length = piece_length(pattern) if pattern_problem(pattern) is None else None
            if length is not None:
                fresh.append((re.compile(pattern), length))
    _own[:] = fresh
    return _own != before


def has_own_patterns() -> bool:
    """Whether there are any: then a secret may look like anything."""
    return bool(_own)


def _hide_matches(pattern: re.Pattern[str], at_once: int, text: str) -> str:
    """Redact what a pattern finds. A long text is gone through in pieces that overlap by half: no secret up
    to that is cut.
    """
    if len(text) <= at_once:
        return pattern.sub(_hide_match, text)
    parts: list[str] = []
    copied = position = 0
    while position < len(text):
        stop = position + at_once
        found = pattern.search(text, position, stop)
        if found is None or (found.start() >= stop - at_once // 2 and stop < len(text)):
            position = stop - at_once // 2 if stop < len(text) else len(text)
            continue
        parts += (text[copied : found.start()], _hide_match(found))
        copied = found.end()
        position = max(copied, position + 1)
    parts.append(text[copied:])
    return "".join(parts)


def _hide_match(found: re.Match[str]) -> str:
    """The secret is the first group where a pattern has groups, and else all that it matched."""
    start, end = found.span(1) if found.re.groups and found.group(1) is not None else found.span()
    if start == end:
        return found.group()
    text, offset = found.group(), found.start()
    return text[: start - offset] + REDACTED + text[end - offset :]


_STEPS = (
    ("private key", _hide_private_keys),
    ("password or key in an address", _hide_addresses),
    ("token", _hide_shapes),
    ("authorization header", _hide_schemes),
    ("password on a command line", _hide_commands),
    (BY_NAME, _hide_assignments),
    ("pattern of FLIGHTLOG_REDACT", _hide_own),
)
"""What is hidden, in this order, and what to call it."""

own_patterns(redact_patterns())
