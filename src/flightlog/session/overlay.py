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


def laid_over(
    base: Node | None, over: Node, overlay: str, *, mark_removed: bool = False, depth: int = 0
) -> Node | None:
    """The base with the overlay's values in it; None where the overlay removes it.

    Mappings merge key by key, keys of the base first. Scalars and lists replace. Null removes. What came from
    the overlay bears its name. With `mark_removed` what was removed inside an entry is null: checks take null
    for "not said", and so see the keys that an overlay removes, misspelt ones too. Entries that are removed
    whole, `components: {model: null}`, stay away.
    """
    if over.value is None:
        return replace(over, overlay=overlay) if mark_removed and depth > 2 else None
    if not isinstance(over.value, dict):
        return marked(over, overlay)
    under = base.entries() if base is not None else {}
    merged = dict(under)
    for key, value in over.value.items():
        laid = laid_over(under.get(key), value, overlay, mark_removed=mark_removed, depth=depth + 1)
        if laid is None:
            merged.pop(key, None)
        else:
            merged[key] = laid
    if base is not None and isinstance(base.value, dict):
        return replace(base, value=merged)
    return Node(merged, over.line, overlay=overlay)


def marked(node: Node, overlay: str) -> Node:
    """A scalar or list, and all in it, as coming from an overlay."""
    if isinstance(node.value, dict):
        inside: dict[str, Node] = {key: marked(value, overlay) for key, value in node.value.items()}
        return replace(node, value=inside, overlay=overlay)
    if isinstance(node.value, tuple):
        return replace(node, value=tuple(marked(item, overlay) for item in node.value), overlay=overlay)
    return replace(node, overlay=overlay)


def changes(
    base: Node | None, over: Node, overlay: str, path: tuple[str, ...] = ()
) -> Iterator[OverlayChange]:
    """What laying `over` on `base` changes, value by value, in the overlay's order; what stays equal is left
    out.
    """
    if isinstance(over.value, dict):  # takes the place of what is no mapping, whatever is in it
        changed = base is not None and base.value is not None and not isinstance(base.value, dict)
    else:
        changed = over.value is not None if base is None else base != over
    if changed:
        yield OverlayChange(
            path=".".join(path),
            overlay=overlay,
            before=None if base is None else str(base),
            before_line=None if base is None else base.line,
            after=None if over.value is None else str(over),
            after_line=over.line,
        )
    for key, node in over.entries().items():
        yield from changes(None if base is None else base.get(key), node, overlay, (*path, key))
