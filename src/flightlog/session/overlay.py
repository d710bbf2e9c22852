"""Overlays: a partial manifest laid over the whole one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from msgspec import Struct

from flightlog.session.yaml_tree import Node


class OverlayChange(Struct, frozen=True, kw_only=True):
    """What an overlay did to one value; texts as written, lists and mappings as `[…]` and `{…}`."""

    path: str
    overlay: str
    before: str | None
    """None where there was nothing."""
    before_line: int | None
    after: str | None
    """None where the overlay removed it."""
    after_line: int


def laid_over(base: Node | None, over: Node, overlay: str) -> Node | None:
    """The base with the overlay's values in it; None where the overlay removes it.

    Mappings merge key by key, keys of the base first. Scalars and lists replace. Null removes. What came from
    the overlay bears its name.
    """
    if over.value is None:
        return None
    if not isinstance(over.value, dict):
        return marked(over, overlay)
    under = base.value if base is not None and isinstance(base.value, dict) else {}
    merged = dict(under)
    for key, value in over.value.items():
        laid = laid_over(under.get(key), value, overlay)
        if laid is None:
            merged.pop(key, None)
        else:
            merged[key] = laid
    if base is not None and isinstance(base.value, dict):
        return replace(base, value=merged)
    return Node(merged, over.line, overlay=overlay)


def with_removals(laid: Node, over: Node, overlay: str, depth: int = 0) -> Node:
    """What came of laying over, with nulls where something inside an entry was removed.

    Checks take null for "not said", and so see the keys that an overlay removes, misspelt ones too. Entries
    that were removed whole, `components: {model: null}`, stay away.
    """
    if not isinstance(laid.value, dict) or not isinstance(over.value, dict):
        return laid
    inside = dict(laid.value)
    for key, value in over.value.items():
        if value.value is None and depth >= 2:
            inside[key] = marked(value, overlay)
        elif key in inside:
            inside[key] = with_removals(inside[key], value, overlay, depth + 1)
    return replace(laid, value=inside)


def marked(node: Node, overlay: str) -> Node:
    """The node, and all in it, as coming from an overlay."""
    if isinstance(node.value, dict):
        inside: dict[str, Node] = {key: marked(value, overlay) for key, value in node.value.items()}
        return replace(node, value=inside, overlay=overlay)
    if isinstance(node.value, tuple):
        return replace(node, value=tuple(marked(item, overlay) for item in node.value), overlay=overlay)
    return replace(node, overlay=overlay)


def changes(base: Node, over: Node, overlay: str) -> list[OverlayChange]:
    """What laying `over` on `base` changes, value by value, in the overlay's order; what stays equal is left
    out.
    """
    found = list(_replaced(base, over, overlay))
    for path, node in over.leaves():
        before = base.get(*path)
        if node.value == {} or (before is None and node.value is None) or _same(before, node):
            continue  # nothing there changes
        found.append(
            OverlayChange(
                path=".".join(path),
                overlay=overlay,
                before=None if before is None else shown(before),
                before_line=None if before is None else before.line,
                after=None if node.value is None else shown(node),
                after_line=node.line,
            )
        )
    return found


def _replaced(base: Node, over: Node, overlay: str, path: tuple[str, ...] = ()) -> Iterator[OverlayChange]:
    """Scalars and lists of the base that a mapping takes the place of, whatever is in it."""
    if not isinstance(over.value, dict):
        return
    for key, node in over.value.items():
        before = base.get(key)
        if before is None or not isinstance(node.value, dict):
            continue
        if isinstance(before.value, dict):
            yield from _replaced(before, node, overlay, (*path, key))
        elif before.value is not None:
            yield OverlayChange(
                path=".".join((*path, key)),
                overlay=overlay,
                before=shown(before),
                before_line=before.line,
                after=shown(node),
                after_line=node.line,
            )


def _same(before: Node | None, after: Node) -> bool:
    return before is not None and plain(before) == plain(after)


def plain(node: Node) -> object:
    """The node's values without lines and origins."""
    if isinstance(node.value, dict):
        return {key: plain(value) for key, value in node.value.items()}
    if isinstance(node.value, tuple):
        return [plain(item) for item in node.value]
    return node.value


def shown(node: Node) -> str:
    """The node as a person would write it on one line, variables unexpanded."""
    if isinstance(node.value, dict):
        return "{" + ", ".join(f"{key}: {shown(value)}" for key, value in node.value.items()) + "}"
    if isinstance(node.value, tuple):
        return "[" + ", ".join(shown(item) for item in node.value) + "]"
    return "null" if node.value is None else node.value
