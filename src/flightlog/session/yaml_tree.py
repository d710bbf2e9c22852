"""A YAML text as a tree that knows its lines; and overlays, which are partial trees laid over a whole one.

Scalars stay as they were written: what `1:30`, `no` or `1.10` mean is decided by the field they stand in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.core.errors import ManifestError
from flightlog.session.limits import SessionLimits

if TYPE_CHECKING:
    import yaml

_TOO_DEEP = f"is nested too deeply; {SessionLimits.max_manifest_depth} levels are the most"
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {
    _TAG + name for name in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "value")
}


@dataclass(frozen=True, slots=True)
class Node:
    """A mapping, a list, a scalar's text, or None for null; and where it stands. Equal are nodes of equal
    values.
    """

    value: dict[str, Node] | tuple[Node, ...] | str | None
    line: int = field(compare=False)
    """From 1; of a mapping's value it is the line of its key."""
    quoted: bool = field(default=False, compare=False)
    """Whether a scalar stood in quotes or as a block: then it is text, whatever it looks like."""
    overlay: str | None = field(default=None, compare=False)
    """The overlay it came from."""

    def get(self, *path: str) -> Node | None:
        """What stands at this path of keys; None where nothing does."""
        node: Node | None = self
        for key in path:
            node = node.value.get(key) if node is not None and isinstance(node.value, dict) else None
        return node

    def entries(self, *path: str) -> dict[str, Node]:
        """The keys and values of the mapping at this path; none where there is no mapping."""
        node = self.get(*path)
        return node.value if node is not None and isinstance(node.value, dict) else {}

    def text(self, *path: str) -> str | None:
        """The scalar at this path as it was written, variables unexpanded; None where there is none."""
        node = self.get(*path)
        return node.value if node is not None and isinstance(node.value, str) else None

    def with_entry(self, key: str, value: Node) -> Node:
        """The mapping with another value at this key."""
        return replace(self, value={**self.entries(), key: value})

    def leaves(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
        """Every scalar, null, list and empty mapping with its path, in the order they were written."""
        if isinstance(self.value, dict) and self.value:
            for key, node in self.value.items():
                yield from node.leaves((*path, key))
        else:
            yield path, self

    def __str__(self) -> str:
        """The node as a person would write it on one line, variables unexpanded."""
        if isinstance(self.value, dict):
            return "{" + ", ".join(f"{key}: {node}" for key, node in self.value.items()) + "}"
        if isinstance(self.value, tuple):
            return "[" + ", ".join(map(str, self.value)) + "]"
        return "null" if self.value is None else self.value


def read_tree(source: str, name: str) -> Node:
    """The tree of a YAML text, which must be one mapping; else a `ManifestError` that names all that is
    wrong.

    Only plain data is read: a tag such as `!!python/object` is an error. So are a key that stands twice, an
    alias inside what it stands for, and more than `max_manifest_values` values. `<<` merges mappings.
    """
    import yaml

    if len(source) > SessionLimits.max_manifest_characters:
        most = f"{SessionLimits.max_manifest_characters:,} are the most"
        raise ManifestError([f"{name}: holds {len(source):,} characters; {most}"])
    try:
        root = yaml.compose(source.removeprefix("\ufeff"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise ManifestError([f"{where}: is not YAML: {said}"]) from None
    except yaml.YAMLError as error:
        raise ManifestError([f"{name}: is not YAML: {' '.join(str(error).split())}"]) from None
    except RecursionError:
        raise ManifestError([f"{name}: {_TOO_DEEP}"]) from None
    if root is None:
        raise ManifestError([f"{name}: is empty; it needs at least `version: 1` and `project`"])
    reading = _Reading(name)
    tree = reading.node(root, 1, ())
    if not isinstance(tree.value, dict):
        reading.problem(root, 1, "a manifest is a mapping of keys to values")
    if reading.problems:
        raise ManifestError(reading.problems)
    return tree


class _Reading:
    """Turns composed nodes into ours and collects what is wrong."""

    def __init__(self, name: str) -> None:
        self.problems: list[str] = []
        self._name = name
        self._values = 0

    def problem(self, node: yaml.Node, line: int, text: str) -> Node:
        """Note what is wrong at a node; null stands in for it."""
        self.problems.append(f"{self._name}:{node.start_mark.line + 1}: {text}")
        return Node(None, line)

    def node(self, found: yaml.Node, line: int, inside: tuple[int, ...]) -> Node:
        """One node with all in it; `inside` are the nodes around it."""
        import yaml

        self._values += 1
        if self._values > SessionLimits.max_manifest_values:
            most = f"{SessionLimits.max_manifest_values:,} values, aliases counted in full"
            raise ManifestError([f"{self._name}: holds more than {most}"])
        if id(found) in inside:
            return self.problem(found, line, "an alias stands inside what it stands for")
        if len(inside) >= SessionLimits.max_manifest_depth:
            return self.problem(found, line, _TOO_DEEP)
        if found.tag not in _PLAIN_TAGS:
            tag = found.tag.replace(_TAG, "!!")
            return self.problem(found, line, f"the tag {tag!r} is not allowed: a manifest is plain data")
        if isinstance(found, yaml.MappingNode):
            return Node(self._mapping(found, (*inside, id(found))), line)
        if isinstance(found, yaml.SequenceNode):
            around = (*inside, id(found))
            items = [self.node(item, item.start_mark.line + 1, around) for item in found.value]
            return Node(tuple(items), line)
        if found.tag == _TAG + "null":
            return Node(None, line)
        return Node(found.value, line, quoted=getattr(found, "style", None) is not None)

    def _mapping(self, found: yaml.MappingNode, inside: tuple[int, ...]) -> dict[str, Node]:
        own: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key, value in found.value:
            line = key.start_mark.line + 1
            if key.tag == _TAG + "merge":
                for part in value.value if value.id == "sequence" else [value]:
                    node = self.node(part, line, inside)
                    if isinstance(node.value, dict):
                        merged = {**node.value, **merged}  # of several, the first wins
                    else:
                        self.problem(key, line, "`<<` merges mappings, and this is none")
            elif key.id != "scalar":
                self.problem(key, line, "a key is a word, not a list or a mapping")
            elif key.value in own:
                first = own[key.value].line
                self.problem(key, line, f"the key {key.value!r} stands twice, first in line {first}")
            else:
                own[key.value] = self.node(value, line, inside)
        return {**merged, **own}


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
