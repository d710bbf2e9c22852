"""What becomes of text on its way into a page."""

from __future__ import annotations

import json

import pytest
from builders.html_pages import Page
from hypothesis import given
from hypothesis import strategies as st

from flightlog.show.html.elements import bounded_lines, coded, data, html_text, said, script, style, tag, way

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=60)


@given(TEXTS, TEXTS)
def test_a_text_stays_a_text_in_elements_and_in_attributes(inside: str, beside: str) -> None:
    [found] = Page(html_text(tag("p", inside, title=beside))).elements
    assert (found.name, found.attributes, found.text) == ("p", {"title": beside}, inside)


@given(
    st.recursive(TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))
)
def test_a_document_comes_back_from_its_element(document: object) -> None:
    [found] = Page(html_text(data("here", json.dumps(document)))).elements
    assert found.attributes == {"type": "application/json", "id": "here"}
    assert "<" not in found.text
    assert json.loads(found.text) == document


def test_children_may_be_nested_and_nothing_is_nothing():
    built = tag(
        "ul",
        None,
        [tag("li", "a"), [tag("li", "b", None)]],
        class_="x",
        hidden=True,
        data_path="a.b",
        id=None,
    )
    assert html_text(built) == '<ul class="x" hidden data-path="a.b"><li>a</li><li>b</li></ul>'


def test_elements_of_a_drawing_are_closed():
    assert html_text(tag("svg", tag("circle", r=1), tag("path", d="M1 1"))) == (
        '<svg><circle r="1"></circle><path d="M1 1"></path></svg>'
    )


@pytest.mark.parametrize(
    "made",
    [
        lambda: tag("script", "alert(1)"),
        lambda: tag("style", "x"),
        lambda: tag("p><script", "x"),
        lambda: tag("p", onclick="alert(1)"),
        lambda: tag("p", **{'x"><script': "1"}),
        lambda: tag("a", "x", href="https://example.org"),
        lambda: tag("a", "x", href="javascript:alert(1)"),
        lambda: way("x", "//example.org"),
        lambda: way("x", "/\\example.org"),
        lambda: way("x", "https://example.org"),
        lambda: way("x", "/run/../x?y"),
        lambda: tag("img", src="data:,"),
        lambda: script("</script>"),
        lambda: script("<!-- <script>"),
        lambda: style("</style>"),
    ],
)
def test_what_could_run_or_lead_out_of_the_page_is_refused(made):
    with pytest.raises(ValueError, match=r"."):
        made()


def test_a_long_text_is_cut_and_the_rest_counted():
    assert said("a" * 10) == "a" * 10
    assert said("a" * 1_000_410, 10) == f"{'a' * 10}… (1,000,400 more characters)"
    assert said("a\x1b[31m\u202eb\n") == "a\\x1b[31m\\u202eb\\n"


def test_of_many_lines_the_last_stand():
    text = "".join(f"line {n}\n" for n in range(100))
    assert bounded_lines(text, 2) == "… (98 earlier lines)\nline 98\nline 99"
    assert bounded_lines("one\ntwo") == "one\ntwo"
    assert bounded_lines(f"{'x' * 5_000_000}\nend", 2).endswith("\nend")
    assert len(bounded_lines("x" * 5_000_000)) < 2000


def test_names_in_backticks_are_code():
    assert html_text(coded("run `a<b` again")) == "run <code>a&lt;b</code> again"
