"""`%load_ext tot_lab` in a notebook: `%think` and `%%think`.

A thought runs in the notebook's own event loop, so that it can be interrupted, and other things go on.
A magic cannot wait; so it gives a coroutine, and the cell awaits it: the transformed cell gets the `await`.
What is wrong with the words is said in one sentence, without a traceback. The run is left in a variable
also where it was interrupted, and what was thought is told to the thoughts that follow.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import re
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from keyword import iskeyword
from token import STRING
from typing import Any

from IPython.core.error import UsageError
from IPython.core.inputtransformer2 import make_tokens_by_line
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, kwds, magic_arguments
from IPython.display import display

from tot_lab.analysis.deep_thought import deep_thought
from tot_lab.apps.cli.arguments import TOOL_OPTIONS, Unusable, budget_in, naming
from tot_lab.apps.cli.thinking import OPTIONS, SIZES, equipped
from tot_lab.apps.deep_thinking import PRESETS, think
from tot_lab.core.records import Line
from tot_lab.core.registry import names
from tot_lab.core.thinking import Budget
from tot_lab.lab.context import SessionMemory, format_value, join_context, read_files
from tot_lab.lab.lab import Lab
from tot_lab.lab.settings import Settings
from tot_lab.models import simulated_models
from tot_lab.models.reachable import NoModel
from tot_lab.record.run import Run
from tot_lab.tools.named import domain_tools
from tot_lab.views.progress import Progress, counted

PERIOD = 0.2
"""Seconds between two paintings of what is under way, at least."""

_NAME = "think"
_WORDS = re.compile(r"""(?<!\S)(?:"[^"]*"|'[^']*')(?!\S)|\S+""")
"""The words of a line. Quotes hold together what stands wholly between them; an apostrophe quotes nothing."""

_HELP = """\
Think a question through: gather what can be known, then work out several approaches at once, judge them,
and make one solution of the best.

    %think [options] QUESTION, in one line
    %%think [options]
    QUESTION, in as many lines as it takes

The run is left in a variable, and later thoughts of this notebook are told what this one came to. Inside a
function, write `run = await tl.think(…)`."""


class Interrupted(Exception):
    """A thought that was interrupted; it shows as one sentence."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def _unquoted(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The magic with its options, in the order in which help shows them."""
    described: dict[str, dict[str, Any]] = {
        **OPTIONS,
        **TOOL_OPTIONS,
        "--context": {"nargs": "+", "metavar": "VAR", "help": "variables that are told: texts, tables, runs"},
        "--lab": {"metavar": "VAR", "help": "a variable that holds a tl.Lab, with its model and tools"},
        "--out": {
            "metavar": "VAR",
            "default": "thought",
            "help": "where the run is left (default: thought)",
        },
        "--help": {"action": "store_true", "help": "show this"},
        "question": {"nargs": "*", "metavar": "QUESTION", "help": "after %%think"},
    }
    for name, settings in reversed(described.items()):
        own = {} if name == "question" or "action" in settings else {"type": _unquoted}
        function = argument(name, **{**own, **settings})(function)
    epilog = "Which model is asked says tot_lab.toml, or TOT_LAB_MODEL. `--` ends the words of an option."
    made: Callable[..., Any] = magic_arguments()(kwds(description=_HELP, epilog=epilog)(function))
    return made


@magics_class
class ThinkMagics(Magics):
    """`%think` and `%%think`, with the memory of their session."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.memory = SessionMemory()
        """What was thought in this notebook."""

    @_options
    @no_var_expand
    @line_cell_magic
    def think(self, line: str, cell: str | None = None) -> Coroutine[Any, Any, None]:
        """Replaced by the help of its options."""
        return self._think(line, cell)

    async def _think(self, line: str, cell: str | None) -> None:
        try:
            asked = _parser().parse_intermixed_args(_WORDS.findall(line))
        except UsageError as error:
            raise UsageError(f"{error}; `%think --help` shows the options") from None
        if asked.help:
            print(_parser().format_help().removeprefix("::\n\n"))  # which is for pages of documentation
            return
        try:
            with naming():
                question = self._question(asked, cell)
                about, lab, options = self._prepared(asked)
        except (Unusable, OSError) as error:
            raise UsageError(str(error)) from None
        last = lab.last
        try:
            with _interruptible(self.shell):
                run = await _painted(
                    self.shell, about, lambda watch: think(question, lab, watch=watch, **options)
                )
        except NoModel as error:
            raise UsageError(str(error)) from None
        except asyncio.CancelledError:
            if lab.last is None or lab.last is last:
                raise Interrupted("Interrupted before a model was asked.") from None
            self.shell.user_ns[asked.out] = lab.last
            calls = counted(lab.last.usage.calls, "call")
            raise Interrupted(f"Interrupted after {calls}; the run so far is in `{asked.out}`.") from None
        self.shell.user_ns[asked.out] = run
        _show(_panel(run))

    def _question(self, asked: argparse.Namespace, cell: str | None) -> str:
        words = _unquoted(asked.question[0]) if len(asked.question) == 1 else " ".join(asked.question)
        if cell is not None and words:
            raise UsageError(f"the question stands below %%think, and not beside it: {words[:60]!r}")
        question = words if cell is None else cell.strip()
        if not question:
            taking = (asked.context, asked.files, asked.budget, asked.tools, asked.allow)
            greedy = cell is None and any(taking)
            hint = "; `--` ends the words of an option, as in `--context notes -- QUESTION`" if greedy else ""
            raise UsageError(
                f"there is no question: %think QUESTION, or %%think and the question below it{hint}"
            )
        if not asked.out.isidentifier() or iskeyword(asked.out):
            raise UsageError(f"--out: {asked.out!r} is no name for a variable")
        return question

    def _prepared(self, asked: argparse.Namespace) -> tuple[str, Lab, dict[str, Any]]:
        """Who is asked in words, the lab, and what `think` takes besides."""
        cut: list[str] = []
        context = [format_value(name, self._variable("--context", name), cut) for name in asked.context or ()]
        if asked.files:
            context.append(read_files(asked.files, cut=cut))
        options = {name: getattr(asked, name) for name in SIZES}
        options |= {"context": join_context(*context), "gather": not asked.no_gather, "memory": self.memory}
        budget = budget_in(asked.budget)
        if asked.lab is None:
            settings, equipment = equipped(asked)
            options |= {"budget": budget or settings.budget, "research": settings.research}
            return " · ".join([settings.summary, *cut]), settings.lab(**equipment), options
        if asked.model is not None:
            raise UsageError("--lab has its model: leave --model out")
        if asked.tools is not None or asked.allow is not None:
            raise UsageError("--lab has its tools: leave --tools and --allow out")
        lab = self._variable("--lab", asked.lab)
        if not isinstance(lab, Lab):
            raise UsageError(f"--lab: {asked.lab} is no tl.Lab, but a {type(lab).__name__}")
        return " · ".join([repr(lab), *cut]), lab, {**options, "budget": budget}

    def _variable(self, option: str, name: str) -> Any:
        names = self.shell.user_ns
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"{option}: this notebook has no variable {name}{hint}")
        return names[name]


def _panel(run: Run) -> Any:
    """What shows the result of a thought: the run itself, where it ended before a call was made."""
    try:
        return deep_thought(run)
    except ValueError:
        return run


def _parser() -> Any:
    return ThinkMagics.think.parser  # type: ignore[attr-defined]  # magic_arguments puts it there


# Showing.


async def _painted(
    shell: InteractiveShell, about: str, begin: Callable[[Callable[[Sequence[Line]], None]], Any]
) -> Run:
    """What `begin(watch)` gives, shown as it comes: on a page as one output that is painted anew, at most
    once a `PERIOD`, in a terminal line by line."""
    progress = Progress(about)
    handle: Any = None
    seen = 0

    def show() -> None:
        nonlocal handle, seen
        if progress.changes == seen:
            return
        seen = progress.changes
        if not _is_page(shell):
            for said in progress.said():
                print(said, file=sys.stderr, flush=True)
        elif handle is None:
            handle = _show(progress, display_id=True)
        else:
            handle.update(progress)

    async def paint() -> None:
        began = time.monotonic()
        while True:
            show()
            await asyncio.sleep(PERIOD)
            if progress.changes:  # it has begun
                progress.tick(time.monotonic() - began)

    painting = asyncio.ensure_future(paint())
    try:
        run: Run = await begin(progress.take)
        return run
    finally:
        painting.cancel()
        show()


def _is_page(shell: InteractiveShell) -> bool:
    return hasattr(shell, "kernel")


def _show(shown: Any, **options: Any) -> Any:
    return display(shown, **options)


@contextmanager
def _interruptible(shell: InteractiveShell) -> Iterator[None]:
    """In a terminal, Ctrl-C cancels what is awaited inside, as a kernel does by itself."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    plain = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if _is_page(shell) or task is None or not plain:
        yield
        return

    def cancel(*_: object) -> None:
        loop.call_soon_threadsafe(task.cancel)

    signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# What the shell is given.

_LINE = "get_ipython().run_line_magic({!r}, {!r})"
_ASKED = re.compile(r"(\s*(?:[\w.]+\s*=\s*)?)%think\s+(\S.*\?)\s*")


def with_question_marks(lines: list[str]) -> list[str]:
    """A cell in which a question after `%think` may end with a question mark, which the shell would take
    for a wish for help."""
    asked = {row: found for row, line in enumerate(lines, 1) if (found := _ASKED.fullmatch(line))}
    if not asked or lines[0].startswith("%%"):
        return lines
    tokens = [token for logical in make_tokens_by_line(lines) for token in logical if token.type == STRING]
    texts = {row for token in tokens for row in range(token.start[0] + 1, token.end[0] + 1)}
    return [
        f"{asked[row][1]}{_LINE.format(_NAME, asked[row][2])}\n" if row in asked.keys() - texts else line
        for row, line in enumerate(lines, 1)
    ]


def awaited(lines: list[str]) -> list[str]:
    """A transformed cell in which each `%think` is awaited. `%%think` with nothing below it is `%think`."""
    text = "".join(lines)
    if repr(_NAME) not in text:
        return lines
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):  # the shell says so itself
        return lines
    already = {id(node.value) for node in nodes if isinstance(node, ast.Await)}
    calls = [node for node in nodes if isinstance(node, ast.Call) and id(node) not in already]
    rows = [row.encode() for row in text.split("\n")]  # where a node stands is told in bytes
    for call in calls:
        said = _magic(call)
        if said is not None:
            row, start, end = call.lineno - 1, call.col_offset, call.end_col_offset
            changed = rows[row][start:end] if said[1:] != [""] else _LINE.format(_NAME, said[0]).encode()
            rows[row] = rows[row][:start] + b"await " + changed + rows[row][end:]
    return b"\n".join(rows).decode().splitlines(keepends=True)


def _magic(call: ast.Call) -> list[Any] | None:
    """The line, and the cell, of a call that the shell made of `%think` or `%%think`, else `None`."""
    made = isinstance(call.func, ast.Attribute) and call.func.attr in ("run_line_magic", "run_cell_magic")
    if not made or not ast.unparse(call.func).startswith("get_ipython().") or call.lineno != call.end_lineno:
        return None
    said = [argument.value if isinstance(argument, ast.Constant) else None for argument in call.args]
    return said[1:] if said[:1] == [_NAME] else None


def complete(shell: InteractiveShell, event: Any) -> list[str]:
    """What may stand at the cursor: an option, or a value of the one before it."""
    words = event.text_until_cursor.split()[1:]
    begun = words.pop() if words and not event.text_until_cursor[-1:].isspace() else ""
    option = next((word for word in reversed(words) if word.startswith("--")), "")
    known: list[str] = []
    if begun.startswith("-"):
        known = [name for action in _parser()._actions for name in action.option_strings]
    elif option == "--preset":
        known = list(PRESETS)
    elif option == "--model":
        known = [model.kind for model in simulated_models()]
        with suppress(ValueError, OSError):
            known += Settings.read().models
    elif option == "--tools":
        known = [*names("tools"), *domain_tools()]
    elif option == "--budget":
        known = [f"{name}=" for name in Budget.model_fields]
    elif option in ("--context", "--out"):
        known = [name for name in shell.user_ns if not name.startswith("_")]
    elif option == "--lab":
        known = [name for name, value in shell.user_ns.items() if isinstance(value, Lab)]
    return [name for name in known if name.startswith(begun)]


def load_magics(shell: InteractiveShell) -> None:
    """Give `shell` the magics; a second time changes nothing."""
    if awaited in shell.input_transformers_post:
        return
    shell.input_transformers_cleanup.append(with_question_marks)
    shell.input_transformers_post.append(awaited)
    shell.register_magics(ThinkMagics(shell))
    for name in (f"%{_NAME}", f"%%{_NAME}"):
        shell.set_hook("complete_command", complete, str_key=name)
