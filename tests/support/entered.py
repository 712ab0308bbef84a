"""The files and functions of the package that one `lab.run` enters, by `sys.setprofile`.

python tests/support/entered.py                      # a tree search
python tests/support/entered.py react sim/general    # another strategy or model
"""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import tot_lab as tl
from tot_lab.core.strategy import strategy_named

PACKAGE = f"{Path(tl.__file__).parent}/"

SUBJECT = ("strategies/", "domains/", "core/reading/")
"""The rooms of what a run is about: how it searches, and reads. All others are infrastructure."""


async def constant(call: tl.Call) -> str:
    """A model that answers at once."""
    return "score: 0.5" if call.purpose == "value" else "a next step"


def entered(strategy: tl.Strategy, model: object, folder: Path | str | None) -> Mapping[str, set[str]]:
    """Return the functions that the second run of `strategy` enters, by file. The first one imports."""
    files: dict[str, set[str]] = {}

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            files.setdefault(code.co_filename.removeprefix(PACKAGE), set()).add(code.co_qualname)

    async def go():
        lab = tl.Lab(model, runs=folder)
        task = tl.general("What is six times seven?")
        await lab.run(strategy, task)
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            await lab.run(strategy, task)
        finally:
            sys.setprofile(before)

    asyncio.run(go())
    return dict(sorted(files.items()))


def is_infrastructure(file: str) -> bool:
    return not file.startswith(SUBJECT)


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else "tree_of_thoughts"
    found = entered(strategy_named(name), sys.argv[2] if len(sys.argv) > 2 else constant, None)
    for file, functions in found.items():
        print(file)
        print(*(f"    {function}" for function in sorted(functions)), sep="\n")
    print(f"{len(found)} files, {sum(map(is_infrastructure, found))} of infrastructure")
