"""Readers of programs in replies."""

from __future__ import annotations


def code_blocks(text: str) -> list[str]:
    """Return the fenced blocks of Python in a text, or else those without a language."""
    blocks: dict[str, list[str]] = {"python": [], "": []}
    language = ""
    lines: list[str] | None = None
    for line in [*text.splitlines(), "```"]:
        if not line.lstrip().startswith("```"):
            if lines is not None:
                lines.append(line)
        elif lines is None:
            language, lines = line.strip(" `").lower(), []
        else:
            name = "python" if language in ("python", "py", "python3") else language
            blocks.setdefault(name, []).append("\n".join(lines))
            lines = None
    return blocks["python"] or blocks[""]
