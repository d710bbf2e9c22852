"""Pages as a browser reads them, for tests of HTML."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import NamedTuple


class Found(NamedTuple):
    """An element, with all the text in it."""

    name: str
    attributes: dict[str, str | None]
    text: str

    def has_class(self, name: str) -> bool:
        return name in (self.attributes.get("class") or "").split()


class Page(HTMLParser):
    """All elements of a page in the order of their ends."""

    VOID = {"meta", "br", "hr"}

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Found] = []
        self._open: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(text)
        self.close()
        assert self._open == [], f"not closed: {[name for name, _, _ in self._open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs)
        if tag in self.VOID:
            self.elements.append(Found(tag, dict(attrs), ""))
        else:
            self._open.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        name, attributes, pieces = self._open.pop()
        assert name == tag
        text = "".join(pieces)
        self.elements.append(Found(name, attributes, text))
        if self._open:
            self._open[-1][2].append(text)

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open[-1][2].append(data)

    def all(self, name: str) -> list[Found]:
        return [one for one in self.elements if one.name == name]

    def by_id(self, identity: str) -> Found:
        [one] = [one for one in self.elements if one.attributes.get("id") == identity]
        return one

    def with_attribute(self, name: str) -> list[Found]:
        return [one for one in self.elements if name in one.attributes]
