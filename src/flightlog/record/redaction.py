"""Secrets stay out: of arguments, command lines, environment and error texts.

Three promises, whatever the input: nothing raises, the time is linear in the length of the text (every
repetition in the patterns is possessive or bounded), and redacting twice is redacting once. Where in doubt a
harmless word is lost rather than a secret kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

REDACTED = "[redacted]"

_ROUNDS = 8
"""What one pass hides may lay bare something for the next; a text that never settles is withheld whole."""

# --- names of secrets ------------------------------------------------------------------------------------


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CAMEL_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_WORDS = re.compile(r"[A-Za-z]+")

_SECRET = _words(
    "password passwords passwd pwd passphrase passcode secret secrets credential credentials creds authorization"
    " auth cookie cookies jwt bearer dsn apikey apikeys accesskey privatekey secretkey sessionkey accountkey"
    " authtoken accesstoken refreshtoken sessiontoken csrftoken xsrftoken sastoken clientsecret connectionstring"
    " connstring connstr sharedaccesssignature userpass dbpass dbpwd sshpass pgpass"
)
_SECRET_ENDINGS = ("password", "passwd", "passphrase")
_KEYS_OF = _words(
    "api access private session account encryption decryption signing master ssh license subscription auth"
    " consumer hmac"
)
_PASS_OF = _words("db user mysql postgres pg smtp imap ssh admin root login ldap redis ftp proxy mail")
_PAIRS = frozenset(
    {("connection", "string"), ("conn", "string"), ("conn", "str"), ("access", "signature")}
    | {(word, key) for word in _KEYS_OF for key in ("key", "keys")}
    | {(word, "pass") for word in _PASS_OF}
)
_HOLDS_TOKENS = _words("auth access refresh api secret bearer session id oauth csrf personal")
_TEXT_TOKEN = _words("pad eos bos unk cls sep mask special next first last per start end image prompt stop")
"""Words before `token` where it is a piece of text and not a key."""
_TOKEN_PART = _words("id ids embedding embeddings dropout loss accuracy dim mask text")
_COUNTED = _words("n num number count max min total avg mean")
"""First words of names that count things."""
_ABOUT = _words(
    "count counts length len limit size budget rate ratio type types method mode name names file files path dir"
    " enabled required policy expiry expires expiration ttl version provider scheme status error errors class"
    " index idx position positions usage"
)
"""Last words of names that hold something about a secret and not the secret."""
_SAS_PART = _words("token url uri key string")


def is_secret_key(key: str) -> bool:
    """Whether a value of this name is a secret: `api_key`, `dbPassword`, `X-Auth-Token`, but not `n_tokens`."""
    return _known_key(key) if len(key) <= 64 else _decide(key)


def _decide(key: str) -> bool:
    camel = [word.lower() for word in _CAMEL_WORDS.findall(key)]
    plain = [word.lower() for word in _WORDS.findall(key)]
    return _names_secret(camel) or (plain != camel and _names_secret(plain))


_known_key = lru_cache(maxsize=4096)(_decide)


def _names_secret(words: list[str]) -> bool:
    if not words or words[0] in _COUNTED or words[-1] in _ABOUT:
        return False
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
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
    """A pattern that is compiled when it is first used: all of them would be most of the time of an import."""

    def __init__(self, source: str, flags: int = 0) -> None:
        self._source, self._flags = source, flags
        self._compiled: re.Pattern[str] | None = None

    def __call__(self) -> re.Pattern[str]:
        if self._compiled is None:
            self._compiled = re.compile(self._source, self._flags)
        return self._compiled


_NAME_STEMS = (
    "pass", "pwd", "secret", "token", "key", "cred", "auth", "cookie", "sas", "dsn", "conn", "jwt", "bearer",
    "access",
)  # fmt: skip
"""One of these is part of every secret's name, in lower case."""
_SHAPE_STEMS = (
    "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "hf_", "npm_", "k_live_", "k_test_",
    "glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "xox", "xapp-", "sk-", "AIza", "ya29.",
    "pypi-", "eyJ",
)  # fmt: skip
"""One of these is part of every well-known token."""

_PEM = _Pattern(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r".*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
_AUTHORITY = _Pattern(r"""://([^\s/?\#"'<>\\]++)""")
_SIGNED = _Pattern(
    r"""((?:[?&]|SharedAccessSignature[ ])(?:sig|signature|x-(?:amz|goog)-(?:signature|credential))=)"""
    r"""[^\s&\#"'<>\\]++""",
    re.IGNORECASE,
)
_SHAPE = _Pattern(
    r"(?<![A-Za-z0-9])(?:(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])|gh[pousr]_[A-Za-z0-9]{20,}+"
    r"|hf_[A-Za-z0-9]{20,}+|npm_[A-Za-z0-9]{30,}+|[sr]k_(?:live|test)_[A-Za-z0-9]{10,}+)"
    r"|(?<![\w-])(?:github_pat_\w{20,}+|gl(?:pat|dt|rt|cbt|ptt|ft|soat)-[\w-]{16,}+|xox[a-z]-[\w-]{8,}+|xapp-[\w-]{8,}+"
    r"|sk-(?=[A-Za-z_-]*+[0-9])[\w-]{16,}+|AIza[\w-]{30,}+|ya29\.[\w-]{20,}+|pypi-[\w-]{40,}+"
    r"|eyJ[\w-]{5,}+\.[\w-]{5,}+\.[\w-]*+)"
)
_SCHEME = _Pattern(r"""(?<!\w)(bearer|basic)([ \t]{1,8})([^\s"',;\\]++)""", re.IGNORECASE)
_BEARER_WORDS = _words("token tokens auth authentication authorization scheme header is of in and or")
_ENCODED = _Pattern(r"[A-Za-z0-9+/_-]{6,}+={0,2}\Z")
_PLAIN_WORD = _Pattern(r"[A-Za-z][a-z]*+\Z|[A-Z]++\Z")

_ASSIGNMENT = _Pattern(
    r"""(?<![\w.-])(?:"""
    r"""([\w.-]++)(?:\\{0,4}["'])?\]?[ \t]{0,8}(:=|=>|={1,3}|:)[ \t]{0,8}"""
    r"""|(--[A-Za-z][\w.-]*+)(?:\\{0,4}["'])?,?[ \t]{1,8}(?!-))"""
)
"""`key=`, `key: `, `"key": `, `["key"] = `, `--key value` and `'--key', 'value'`, up to the value."""
_OPENING = _Pattern(r"""[bBrRuUfF]{0,2}(\\{0,4})(\"\"\"|'''|["'])""")
_INSIDE = {
    '"': _Pattern(r"""(?:[^"\\\r\n]|\\.)*+"""),
    "'": _Pattern(r"""(?:[^'\\\r\n]|\\.)*+"""),
}
_INSIDE_ESCAPED = {'"': _Pattern(r"""[^"\r\n]*+"""), "'": _Pattern(r"""[^'\r\n]*+""")}
_BARE = _Pattern(
    r"""(?:\([^()\r\n]*+\)?|\[[^\[\]\r\n]*+\]?|\{[^{}\r\n]*+\}?"""
    r"""|(?:bearer|basic|token|digest|negotiate|apikey)[ \t]{1,8}(?=[^\s"',;&]))?[^\s"',;&]*+""",
    re.IGNORECASE,
)
_HEADER = _Pattern(r"""[^\r\n"']*+""")
_HEADER_KEYS = ("authorization", "cookie")
_NO_SECRET = frozenset({"none", "null", "nil", "true", "false", "undefined"})


def redact_text(text: str) -> str:
    """The text with every secret that can be recognized in it replaced by `REDACTED`."""
    if len(text) < 16 and not ("=" in text or ":" in text or " " in text):
        return text  # too short for a token, and nothing is assigned: most tags
    for _ in range(_ROUNDS):
        again = _redact_once(text)
        if again == text:
            return text
        text = again
    return REDACTED


def _redact_once(text: str) -> str:
    # Substring searches are far cheaper than the patterns, and clear the common text that holds no secret.
    lowered = text.lower()
    if "private key" in lowered:
        text = _PEM().sub(REDACTED, text)
    if "://" in text:
        text = _AUTHORITY().sub(_hide_userinfo, text)
    if "sig" in lowered or "-credential=" in lowered:
        text = _SIGNED().sub(_hide_signature, text)
    if _holds_any(text, _SHAPE_STEMS):
        text = _SHAPE().sub(REDACTED, text)
    if "bearer" in lowered or "basic" in lowered:
        text = _SCHEME().sub(_hide_scheme, text)
    if ("=" in text or ":" in text or "--" in text) and _holds_any(lowered, _NAME_STEMS):
        text = _hide_assigned(text)
    return text


def _holds_any(text: str, stems: tuple[str, ...]) -> bool:
    for stem in stems:  # noqa: SIM110 - `any` over a generator takes twice as long, and this runs for every tag
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
        return inside.span()
    bare = (_HEADER if header else _BARE)().match(text, position)
    assert bare is not None
    value = bare.group().rstrip()
    if value.lower().rstrip(")]}") in _NO_SECRET or not value.strip(")]}>*.…"):
        return position, position
    return position, position + len(value)


# --- commands and mappings -------------------------------------------------------------------------------

_NAMED_ARGUMENT = _Pattern(r"(-{0,2}[A-Za-z_][\w.-]*+)(=|:[ \t]*+)(.+)", re.DOTALL)
_USER_FLAGS = frozenset({"-u", "-U", "--user", "--proxy-user"})
_ATTACHED = {"mysql": "-p", "mysqldump": "-p", "mysqladmin": "-p", "mariadb": "-p", "sshpass": "-p"}
"""Programs whose password is glued to its flag, as in `mysql -pSECRET`."""
_SEPARATE = {"sshpass": "-p", "redis-cli": "-a"}


def redact_command(argv: Sequence[str]) -> list[str]:
    """The arguments with passwords, tokens and headers redacted; as many as there were, in their order.

    `--token X`, `--token=X`, `TOKEN=X`, `Authorization: X`, `-u name:X`. A bare `-pX` is left as it is, as it
    means a port or a path to most programs, unless the program before it is known to read a password there.
    """
    result: list[str] = []
    attached: set[str] = set()
    separate: set[str] = set()
    previous = ""
    for argument in argv:
        program = argument.rpartition("/")[2]
        attached.update(_ATTACHED.get(program, "").split())
        separate.update(_SEPARATE.get(program, "").split())
        result.append(_redact_argument(argument, previous, attached, separate))
        previous = argument
    return result


def _redact_argument(argument: str, previous: str, attached: set[str], separate: set[str]) -> str:
    flag = previous.startswith("-") and "=" not in previous
    if flag and argument and not argument.startswith("--"):
        if previous in separate or (len(previous) > 2 and is_secret_key(previous)):
            return REDACTED
        if previous in _USER_FLAGS and "://" not in argument:
            name, colon, password = argument.partition(":")
            return f"{name}:{REDACTED}" if colon and password else redact_text(argument)
    if previous == "-c":  # a whole program for a shell or an interpreter
        return redact_text(argument)
    if argument[:2] in attached and len(argument) > 2 and not argument.startswith("--"):
        return argument[:2] + REDACTED
    named = _NAMED_ARGUMENT().fullmatch(argument)
    if named is not None and is_secret_key(named.group(1)[-128:]):
        return f"{named.group(1)}{named.group(2)}{REDACTED}"
    return redact_text(argument)


def redact_mapping(mapping: Mapping[str, str]) -> dict[str, str]:
    """The mapping with the values of secret names redacted whole, and secrets inside the others' values."""
    return {
        key: (REDACTED if value and is_secret_key(key) else redact_text(value))
        for key, value in mapping.items()
    }
