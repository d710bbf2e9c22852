"""Secrets that are written out in a manifest: where they stand, what kind they are, and the manifest without
them.

A secret belongs into a variable: `password: ${DB_PASSWORD}` is none, `password: hunter2` is one, and so is
the default in `${DB_PASSWORD:-hunter2}`. Values count by their keys and by what they look like; comments by
what they look like.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.core.alerts import public_address
from flightlog.core.redaction import BY_NAME, REDACTED, is_secret, kind_of_secret, redact_text
from flightlog.session.expansion import as_written, has_variables

if TYPE_CHECKING:
    import yaml

_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*")
ADDRESS = "address of a notification"
_TEXT_TAGS = ("str", "int", "float", "timestamp", "value")


class WrittenSecret(Struct, frozen=True, kw_only=True):
    """One secret in the text of a manifest."""

    line: int
    """From 1."""
    path: str
    """Its keys, joined by dots; `a comment` for one."""
    kind: str
    """What it is, in words."""
    start: int
    end: int
    """Where it stands in the text."""
    instead: str
    """What may stand there."""


def secret_kind(text: str, key: str = "") -> str | None:
    """What kind of secret a value of the manifest holds, in words; None where it holds none, or all in
    variables.
    """
    written = as_written(text)
    if is_secret(key, written):
        return BY_NAME
    return kind_of_secret(written)


def written_secrets(source: str) -> list[WrittenSecret]:
    """Every secret in the text of a manifest, in its order; none where the text is not YAML."""
    import yaml

    text = source.removeprefix("\ufeff")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return []
    scalars = {node.start_mark.index: (path, node, key) for path, node, key in _scalars(root, (), set())}
    found: list[WrittenSecret] = []
    position = 0
    for start, (path, node, key) in sorted(scalars.items()):
        found += _in_comments(text, position, start)
        position = max(position, node.end_mark.index)
        to_send_to = key in {"notify", "webhook"} and "alerts" in path
        kind = ADDRESS if to_send_to and _is_secret_address(node.value) else secret_kind(node.value, key)
        if kind is not None:
            found.append(_secret(text, path, node, kind))
    return found + _in_comments(text, position, len(text))


def without_secrets(source: str) -> str:
    """The text of a manifest with its secrets redacted, and all else as written."""
    mark = source[: len(source) - len(source.removeprefix("\ufeff"))]
    text = source.removeprefix("\ufeff")
    for secret in reversed(written_secrets(source)):
        text = text[: secret.start] + secret.instead + text[secret.end :]
    return mark + text


def _scalars(
    node: yaml.Node | None, path: tuple[str, ...], seen: set[int]
) -> Iterator[tuple[tuple[str, ...], yaml.ScalarNode, str]]:
    """Every text and number, keys among them, with its path and the key that says what it is."""
    import yaml

    if node is None or id(node) in seen:  # an alias
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        if node.tag.rpartition(":")[2] in _TEXT_TAGS:
            yield path, node, path[-1] if path else ""
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item, path, seen)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield (*path, key.value), key, ""
            yield from _scalars(value, (*path, str(getattr(key, "value", ""))), seen)


def _secret(text: str, path: tuple[str, ...], node: yaml.ScalarNode, kind: str) -> WrittenSecret:
    start, end = node.start_mark.index, node.end_mark.index
    shown = REDACTED if kind == BY_NAME or has_variables(node.value) else redact_text(node.value)
    if kind == ADDRESS:
        shown = public_address(node.value)
    block = text[start:end].endswith("\n")  # `|` and `>` reach up to the next key
    return WrittenSecret(
        line=node.start_mark.line + 1,
        path=".".join(map(redact_text, path)),
        kind=kind,
        start=start,
        end=end,
        instead=json.dumps(shown, ensure_ascii=False) + "\n" * block,
    )


def _is_secret_address(text: str) -> bool:
    """Whether more is said of where alerts go than the host of a server: a token may stand anywhere in it."""
    return not has_variables(text) and public_address(text) != text.rstrip("/")


def _in_comments(text: str, start: int, end: int) -> list[WrittenSecret]:
    """Those in the comments between two values."""
    found: list[WrittenSecret] = []
    for comment in _COMMENT.finditer(text, start, end):
        kind = kind_of_secret(comment.group())
        if kind is not None:
            (at, to), instead = comment.span(), redact_text(comment.group())
            line = text.count("\n", 0, at) + 1
            found.append(
                WrittenSecret(line=line, path="a comment", kind=kind, start=at, end=to, instead=instead)
            )
    return found
