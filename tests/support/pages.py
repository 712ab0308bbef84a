"""The code of the README and the guides."""

import ast
import asyncio
import inspect
import re

from support import ROOT


def blocks(document: str, language: str = "python") -> list[str]:
    """The code of a page in one language."""
    text = (ROOT / document).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def execute(code: str, names: dict) -> dict:
    """Run a notebook cell, `await` and all."""
    compiled = compile(code, "<document>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def cell():
        done = eval(compiled, names)
        if inspect.iscoroutine(done):
            await done

    asyncio.run(cell())
    return names
