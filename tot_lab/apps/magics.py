"""The notebook magics `%think` and `%%think`, loaded by `%load_ext tot_lab`.

A run uses the event loop of the notebook, so it can be interrupted and other tasks continue. A magic cannot
await. It returns a coroutine, and an input transformer adds the `await` to the cell. An invalid argument is
reported in one sentence without a traceback. The run is stored in a variable even if it was interrupted, and
its result becomes context for later runs of the session.
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
from tot_lab.apps.cli.arguments import TOOL_OPTIONS, InvalidArgument, argument_errors, parse_budget
from tot_lab.apps.cli.terminal import escaped
from tot_lab.apps.cli.thinking import OPTIONS, SIZES, settings_and_tools
from tot_lab.apps.deep_thinking import PRESETS, NoModel, think
from tot_lab.core.protocol import Budget
from tot_lab.core.records import Line
from tot_lab.core.registry import names
from tot_lab.lab.context import SessionMemory, format_value, join_context, read_files
from tot_lab.lab.lab import Lab
from tot_lab.lab.settings import Settings
from tot_lab.record.run import Run
from tot_lab.tools.toolbox import domain_tools
from tot_lab.views.progress import Progress, pluralize

PERIOD = 0.2
"""Minimum number of seconds between two updates of the progress display."""

_NAME = "think"
_WORDS = re.compile(r"""(?<!\S)(?:"[^"]*"|'[^']*')(?!\S)|\S+""")
"""Pattern of one argument of a magic. Quotes that do not enclose a whole argument are ordinary text."""

_HELP = """\
Think a question through: gather facts, develop several approaches at once, judge them, and combine the best
into one solution.

    %think [options] QUESTION on one line
    %%think [options]
    QUESTION on one or more lines

The run is stored in a variable, and its result becomes context for later questions of this notebook. Inside a
function, write `run = await tl.think(…)`."""


class Interrupted(Exception):
    """Raised when a run is interrupted. A notebook shows it as one sentence without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def _strip_quotes(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the magic `function` with its options. The help text lists them in the order given here."""
    options: dict[str, dict[str, Any]] = {
        **OPTIONS,
        **TOOL_OPTIONS,
        "--context": {
            "nargs": "+",
            "metavar": "VAR",
            "help": "variables to add to the context: texts, tables, runs",
        },
        "--lab": {"metavar": "VAR", "help": "variable that holds a tl.Lab, whose model and tools are used"},
        "--out": {
            "metavar": "VAR",
            "default": "thought",
            "help": "variable that receives the run (default: thought)",
        },
        "--help": {"action": "store_true", "help": "show this help"},
        "question": {"nargs": "*", "metavar": "QUESTION", "help": "after %%think"},
    }
    for name, settings in reversed(options.items()):
        own = {} if name == "question" or "action" in settings else {"type": _strip_quotes}
        function = argument(name, **{**own, **settings})(function)
    epilog = "The default model is set in tot_lab.toml or TOT_LAB_MODEL. `--` ends the values of an option."
    made: Callable[..., Any] = magic_arguments()(kwds(description=_HELP, epilog=epilog)(function))
    return made


@magics_class
class ThinkMagics(Magics):
    """The magics `%think` and `%%think` of one notebook session."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.memory = SessionMemory()
        """Results of earlier `%think` runs of this session."""

    @_options
    @no_var_expand
    @line_cell_magic
    def think(self, line: str, cell: str | None = None) -> Coroutine[Any, Any, None]:
        """Run Deep Think on a question. The help text is generated from the options."""
        return self._think(line, cell)

    async def _think(self, line: str, cell: str | None) -> None:
        try:
            args = _parser().parse_intermixed_args(_WORDS.findall(line))
        except UsageError as error:
            raise UsageError(f"{error}; `%think --help` shows the options") from None
        if args.help:
            print(_parser().format_help().removeprefix("::\n\n"))  # IPython adds a reStructuredText marker
            return
        try:
            with argument_errors():
                question = self._question(args, cell)
                about, lab, options = self._lab_and_options(args)
        except (InvalidArgument, OSError) as error:
            raise UsageError(str(error)) from None
        last = lab.last
        try:
            with _cancel_on_ctrl_c(self.shell):
                run = await _display_progress(
                    self.shell, about, lambda watch: think(question, lab, watch=watch, **options)
                )
        except NoModel as error:
            raise UsageError(str(error)) from None
        except asyncio.CancelledError:
            if lab.last is None or lab.last is last:
                raise Interrupted("Interrupted before the first model call.") from None
            self.shell.user_ns[args.out] = lab.last
            calls = pluralize(lab.last.usage.calls, "call")
            raise Interrupted(f"Interrupted after {calls}; the run so far is in `{args.out}`.") from None
        self.shell.user_ns[args.out] = run
        _show(_panel(run))

    def _question(self, args: argparse.Namespace, cell: str | None) -> str:
        words = _strip_quotes(args.question[0]) if len(args.question) == 1 else " ".join(args.question)
        if cell is not None and words:
            raise UsageError(f"Write the question below %%think, not beside it: got {words[:60]!r}.")
        question = words if cell is None else cell.strip()
        if not question:
            lists = (args.context, args.files, args.budget, args.tools, args.allow)
            greedy = cell is None and any(lists)
            hint = (
                " `--` ends the values of an option, as in `--context notes -- QUESTION`." if greedy else ""
            )
            raise UsageError(
                f"No question given. Write %think QUESTION, or %%think with the question below it.{hint}"
            )
        if not args.out.isidentifier() or iskeyword(args.out):
            raise UsageError(f"--out must be the name of a variable: got {args.out!r}.")
        return question

    def _lab_and_options(self, args: argparse.Namespace) -> tuple[str, Lab, dict[str, Any]]:
        """Return a description of the lab, the lab, and the other arguments for `think`."""
        cut: list[str] = []
        context = [format_value(name, self._variable("--context", name), cut) for name in args.context or ()]
        if args.files:
            context.append(read_files(args.files, cut=cut))
        options = {name: getattr(args, name) for name in SIZES}
        options |= {"context": join_context(*context), "gather": not args.no_gather, "memory": self.memory}
        budget = parse_budget(args.budget)
        if args.lab is None:
            settings, equipment = settings_and_tools(args)
            options |= {"budget": budget or settings.budget, "research": settings.research}
            return " · ".join([settings.summary, *cut]), settings.lab(**equipment), options
        if args.model is not None:
            raise UsageError("--lab and --model exclude each other: the lab has its own model.")
        if args.tools is not None or args.allow is not None:
            raise UsageError("--lab excludes --tools and --allow: the lab has its own tools.")
        lab = self._variable("--lab", args.lab)
        if not isinstance(lab, Lab):
            raise UsageError(f"--lab must name a tl.Lab: got {args.lab}, of type {type(lab).__name__}.")
        return " · ".join([repr(lab), *cut]), lab, {**options, "budget": budget}

    def _variable(self, option: str, name: str) -> Any:
        names = self.shell.user_ns
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise UsageError(f"{option}: this notebook has no variable {name}.{hint}")
        return names[name]


def _panel(run: Run) -> Any:
    """Return the object to display for a run: its Deep Think panel, or the run itself if it made no call."""
    try:
        return deep_thought(run)
    except ValueError:
        return run


def _parser() -> Any:
    return ThinkMagics.think.parser  # type: ignore[attr-defined]  # set by magic_arguments


# Display.


async def _display_progress(
    shell: InteractiveShell, about: str, begin: Callable[[Callable[[Sequence[Line]], None]], Any]
) -> Run:
    """Await `begin(watch)` and show its progress.

    A notebook shows one output, updated at most once per `PERIOD`; a terminal prints line by line.
    """
    progress = Progress(about)
    handle: Any = None
    seen = 0

    def show() -> None:
        nonlocal handle, seen
        if progress.changes == seen:
            return
        seen = progress.changes
        if not _in_kernel(shell):
            for line in progress.new_lines():
                print(escaped(line), file=sys.stderr, flush=True)
        elif handle is None:
            handle = _show(progress, display_id=True)
        else:
            handle.update(progress)

    async def update() -> None:
        began = time.monotonic()
        while True:
            show()
            await asyncio.sleep(PERIOD)
            if progress.changes:  # the run has begun
                progress.tick(time.monotonic() - began)

    updating = asyncio.ensure_future(update())
    try:
        run: Run = await begin(progress.take)
        return run
    finally:
        updating.cancel()
        show()


def _in_kernel(shell: InteractiveShell) -> bool:
    return hasattr(shell, "kernel")


def _show(shown: Any, **options: Any) -> Any:
    return display(shown, **options)


@contextmanager
def _cancel_on_ctrl_c(shell: InteractiveShell) -> Iterator[None]:
    """Cancel the current task on Ctrl-C in a terminal. A Jupyter kernel does this itself."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    plain = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if _in_kernel(shell) or task is None or not plain:
        yield
        return

    def cancel(*_: object) -> None:
        loop.call_soon_threadsafe(task.cancel)

    signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Input transformers and completion.

_LINE = "get_ipython().run_line_magic({!r}, {!r})"
_ASKED = re.compile(r"(\s*(?:[\w.]+\s*=\s*)?)%think\s+(\S.*\?)\s*")


def keep_question_marks(lines: list[str]) -> list[str]:
    """Replace each line `%think … ?` by a call of the magic, since IPython reads a final `?` as a request for
    help.
    """
    marked = {row: found for row, line in enumerate(lines, 1) if (found := _ASKED.fullmatch(line))}
    if not marked or lines[0].startswith("%%"):
        return lines
    tokens = [token for logical in make_tokens_by_line(lines) for token in logical if token.type == STRING]
    texts = {row for token in tokens for row in range(token.start[0] + 1, token.end[0] + 1)}
    return [
        f"{marked[row][1]}{_LINE.format(_NAME, marked[row][2])}\n" if row in marked.keys() - texts else line
        for row, line in enumerate(lines, 1)
    ]


def await_magics(lines: list[str]) -> list[str]:
    """Add `await` to each `%think` of a transformed cell. `%%think` with an empty body becomes `%think`."""
    text = "".join(lines)
    if repr(_NAME) not in text:
        return lines
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):  # IPython reports the error
        return lines
    already = {id(node.value) for node in nodes if isinstance(node, ast.Await)}
    calls = [node for node in nodes if isinstance(node, ast.Call) and id(node) not in already]
    rows = [row.encode() for row in text.split("\n")]  # `ast` counts columns in bytes
    for call in calls:
        given = _magic_arguments(call)
        if given is not None:
            row, start, end = call.lineno - 1, call.col_offset, call.end_col_offset
            changed = rows[row][start:end] if given[1:] != [""] else _LINE.format(_NAME, given[0]).encode()
            rows[row] = rows[row][:start] + b"await " + changed + rows[row][end:]
    return b"\n".join(rows).decode().splitlines(keepends=True)


def _magic_arguments(call: ast.Call) -> list[Any] | None:
    """Return the arguments of a call that the shell generated from `%think` or `%%think`.

    These are `[line]` or `[line, cell]`. Returns `None` for any other call.
    """
    made = isinstance(call.func, ast.Attribute) and call.func.attr in ("run_line_magic", "run_cell_magic")
    if not made or not ast.unparse(call.func).startswith("get_ipython().") or call.lineno != call.end_lineno:
        return None
    given = [argument.value if isinstance(argument, ast.Constant) else None for argument in call.args]
    return given[1:] if given[:1] == [_NAME] else None


def complete(shell: InteractiveShell, event: Any) -> list[str]:
    """Return the completions of the word at the cursor: options, or values of the option before it."""
    words = event.text_until_cursor.split()[1:]
    begun = words.pop() if words and not event.text_until_cursor[-1:].isspace() else ""
    option = next((word for word in reversed(words) if word.startswith("--")), "")
    known: list[str] = []
    if begun.startswith("-"):
        known = [name for action in _parser()._actions for name in action.option_strings]
    elif option == "--preset":
        known = list(PRESETS)
    elif option == "--model":
        known = [name for name in names("models") if name.startswith("sim/")]
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
    """Register the magics with `shell`. A second call has no effect."""
    if await_magics in shell.input_transformers_post:
        return
    shell.input_transformers_cleanup.append(keep_question_marks)
    shell.input_transformers_post.append(await_magics)
    shell.register_magics(ThinkMagics(shell))
    for name in (f"%{_NAME}", f"%%{_NAME}"):
        shell.set_hook("complete_command", complete, str_key=name)
