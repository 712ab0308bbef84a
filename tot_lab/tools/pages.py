"""A page's HTML as Markdown: a program of its own, which reads the one and writes the other.

Rule: a page is never parsed in the lab's process. One that was made for it keeps a parser busy for hours,
and Python's lock with it, so that all else would stand still; a process can be ended.
"""

from __future__ import annotations

import sys

_UNREAD = ("script", "style", "noscript", "template", "svg", "iframe")


def readable(html: str) -> str:
    """The text of a page as Markdown."""
    from bs4 import BeautifulSoup  # noqa: PLC0415
    from markdownify import MarkdownConverter  # noqa: PLC0415

    page = BeautifulSoup(html, "html.parser")
    for element in page(_UNREAD):
        element.decompose()
    try:
        text: str = MarkdownConverter(heading_style="atx").convert_soup(page)
    except RecursionError:  # nested as no person writes
        text = page.get_text("\n")
    lines = (line.rstrip() for line in text.splitlines())
    kept, blank = list[str](), True
    for line in lines:
        if line or not blank:
            kept.append(line)
        blank = not line
    return "\n".join(kept).strip()


def main(charset: str, html: str) -> None:
    """From the standard input to the standard output. html: "html", or "" for a plain text."""
    text = sys.stdin.buffer.read().decode(charset, "replace")
    sys.stdout.buffer.write((readable(text) if html else text).encode("utf-8", "replace"))


if __name__ == "__main__":
    main(*sys.argv[1:])
