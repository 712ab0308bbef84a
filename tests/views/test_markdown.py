"""Whatever stands in a text, it stays within its place in a document of ours."""

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tot_lab.views.figures.theme import short
from tot_lab.views.markdown import LONG, escape_line, excerpt, sanitize, to_html

SIGNS = "#=-`~<>![]()*_\\|:.1a \t\n&"
TEXTS = st.one_of(
    st.text(),
    st.text(SIGNS, max_size=60),
    st.lists(
        st.sampled_from(
            ["```", "~~~~", "# T", "T\n===", "> ", "- ", "<b>", "<script>", "</div>", "`", "``", "![a](b)",
             "\n\n", "    ", "1. ", "|a|b|\n|-|-|", "[a]: /b", "<!--", "\\", "x", "\n", "<a@b>", "&lt;", "**"]
        ),
        max_size=12,
    ).map("".join),
)  # fmt: skip
OUTER = "one\n\n{}\n\n# after\n\ntwo"


def tokens_of(document):
    """As a reader's renderer sees it, which takes HTML for HTML."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(document)
    return [part for token in tokens for part in [token, *(token.children or [])]]


@pytest.mark.slow
@given(TEXTS)
@example("\\`<b>`")
@example("\\```![]()```")
@example("- a\n\n  <b>\n  ```\n  <i>")
@example("> ```\n<b>")
def test_a_text_stays_in_its_place(text):
    for inner in (sanitize(text), excerpt(text, 40), escape_line(text, 40)):
        tokens = tokens_of(OUTER.format(inner))
        kinds = [token.type for token in tokens]
        assert not {"html_block", "html_inline", "image"} & set(kinds)
        assert kinds.count("heading_open") == 1
        last = [token for token in tokens if token.type == "inline"][-2:]
        assert [(token.content, token.level) for token in last] == [("after", 1), ("two", 1)], (
            "they are outside"
        )


@pytest.mark.slow
@given(TEXTS)
@example("--")
@example("1. # a")
def test_a_line_is_a_line(text):
    for line in (excerpt(text, 40), escape_line(text, 40)):
        assert "\n" not in line
        listed = [token.type for token in tokens_of(f"- {line}")]
        assert set(listed) & {"paragraph_open", "list_item_close"}
        assert not {"fence", "heading_open", "blockquote_open", "hr"} & set(listed)
        assert listed.count("list_item_open") == 1


@pytest.mark.slow
@given(TEXTS)
def test_what_is_literal_is_shown_as_it_is(text):
    tokens = tokens_of(f"a {escape_line(text, 1000)}")
    shown = "".join(token.content for token in tokens if token.type in ("text", "text_special"))
    assert shown.split() == ["a", *short(text, 1000).split()]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("# Title\ntext\n## Sub ##\nmore", "**Title**\n\ntext\n\n**Sub**\n\nmore"),
        ("Title\n---\ntext", "**Title**\n\ntext"),
        ("> # quoted\n> text", ">\n> **quoted**\n>\n> text"),
        ("```python\n# a comment\n<b>", "```python\n# a comment\n<b>\n```"),
        ("~~~~\n```", "~~~~\n```\n~~~~"),
        ("use `<b>`, not <b>", "use `<b>`, not &lt;b>"),
        ("a < b, and \\<i>", "a < b, and \\<i>"),
        ("![a](http://x/y.png)", "\\![a](http://x/y.png)"),
        ("two\r\nlines\x00", "two\nlines"),
    ],
)
def test_how_a_text_is_tamed(text, told):
    assert sanitize(text) == told


def test_a_line_of_a_text():
    assert excerpt("# Title\n```\ncode\n```\nSome **bold** words\n\n- one\n- two", 40) == (
        "Title Some **bold** words one two"
    )
    assert excerpt("```\ncode\n```", 40) == "\\`\\`\\` code \\`\\`\\`"
    assert excerpt("a" * 50, 10) == "a" * 9 + "…"
    assert escape_line("1. *a* snake_case", 40) == "1\\. \\*a\\* snake_case"


def test_html_and_images_are_never_rendered():
    html = to_html(
        "<b>x</b> ![a](http://x/y.png) [b](javascript:alert(1)) [c](http://c)\n\n<script>1</script>"
    )
    assert re.findall("<(\\w+)", html) == ["p", "a", "a", "p"]
    assert "javascript" not in "".join(re.findall('href="([^"]*)"', html))


@pytest.mark.nightly
def test_a_long_text_is_shown_as_it_is_at_once():
    started = time.process_time()
    text = "# ```` [" * 125_000
    told = sanitize(text)
    assert len(text) > LONG
    assert told == f"`````\n{text.rstrip()}\n`````"
    for part in ("[", "`", "*a ", "![[", "<b>", "](", "> ", "|a"):
        to_html(sanitize(part * (LONG // len(part))))
    assert time.process_time() - started < 60
