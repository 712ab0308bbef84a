"""A program that converts a page's HTML from standard input to Markdown on standard output.

Pages are never parsed in the lab's process. A malicious page could keep a parser, and the GIL,
busy for hours; a separate process can be killed.
"""

from __future__ import annotations

import sys

_UNREAD = ("script", "style", "noscript", "template", "svg", "iframe")


def readable(html: str) -> str:
    """Return the text of a page as Markdown."""
    from bs4 import BeautifulSoup  # noqa: PLC0415
    from markdownify import MarkdownConverter  # noqa: PLC0415

    page = BeautifulSoup(html, "html.parser")
    for element in page(_UNREAD):
        element.decompose()
    try:
        text: str = MarkdownConverter(heading_style="atx").convert_soup(page)
    except RecursionError:  # nested too deeply
        text = page.get_text("\n")
    lines = (line.rstrip() for line in text.splitlines())
    kept, blank = list[str](), True
    for line in lines:
        if line or not blank:
            kept.append(line)
        blank = not line
    return "\n".join(kept).strip()


def main(charset: str, html: str) -> None:
    """Convert standard input to standard output. `html` is "html", or "" for plain text."""
    text = sys.stdin.buffer.read().decode(charset, "replace")
    sys.stdout.buffer.write((readable(text) if html else text).encode("utf-8", "replace"))


if __name__ == "__main__":
    main(*sys.argv[1:])
