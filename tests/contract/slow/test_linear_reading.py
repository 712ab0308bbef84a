"""Every pattern and every reader that sees a model's text takes time linear in it.

Rule: nothing is exempt by accident. Patterns are found in the source of every module, and each is tried with
the methods that its module calls. A pattern is tried on generic pieces, on its own words, and on texts that
its own syntax generates. Only a quadratic ratio fails: 40,000 characters may take 10 times as long as 10,000.
"""

import ast
import importlib
import inspect
import pkgutil
import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from support import DOMAINS, TASK
from support.contract import HANDS, PATHS

import tot_lab
from tot_lab.core import scrubbing, tools
from tot_lab.core.arithmetic import value_of
from tot_lab.core.calls import Call, Message, Reply, ToolCall
from tot_lab.core.reading import (
    answers,
    choices,
    code,
    decoration,
    expressions,
    finish_reasons,
    json_values,
    judgements,
    lists,
    markup,
    mathematics,
    names,
    scores,
    thinking,
    verdicts,
    votes,
)
from tot_lab.core.records import Thought
from tot_lab.core.registry import built_in
from tot_lab.domains.puzzles.base import PuzzleDomain
from tot_lab.models.simulated import Simulated
from tot_lab.strategies import categories, conversation, plans, react, research, tool_needs
from tot_lab.strategies.acting import AvailableTools
from tot_lab.strategies.conversation import read_arguments, text_tool_calls
from tot_lab.strategies.deep_think_replies import Approaches, Convergence, Development
from tot_lab.strategies.structured import _form
from tot_lab.strategies.thinking_level import next_action
from tot_lab.views import markdown

GLANCE, SHORT, LONG = 2_000, 10_000, 40_000
LITTLE = 0.004
"""Seconds of CPU time below which a ratio says nothing."""
MOST = 2.0
"""Seconds after which a try is broken off: a linear reader takes an eighth of that."""
ENOUGH = 0.5
"""Seconds after which the short text is not tried again: what takes so long is measured well."""

MODELS = list(dict.fromkeys(built_in("models").values()))

METHODS = {"search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split"}

EXEMPT = {
    "tot_lab.apps.cli.arguments:58": "sees pydantic's messages on settings",
    "tot_lab.strategies.adaptive._CUES": "sees the first 4,000 characters of a task",
    "tot_lab.strategies.categories._KEYWORDS": "sees the first 4,000 characters of a task",
}
"""Patterns whose text is bounded before they see it; `test_what_is_exempt_is_bounded` tries their callers."""

GENERATED = {
    "tot_lab.models.chat.replies": "of a key, escaped: it is a text",
    "tot_lab.core.tools": "of a tool's name; tried as `is_requested_in`",
    "tot_lab.domains.multi_hop": "of a kind of thing; tried by `HANDS`",
    "tot_lab.strategies.search.reward_model": "of the user; the default is tried as `_BLANK_LINES`",
    "tot_lab.domains.agent_player": "of a prompt's own words; tried by the simulated models",
    "tot_lab.strategies.research": "of a quote; tried as `altered`",
}
"""Modules that make patterns while they run, and what tries these."""


class Slow(Exception):
    """The text took longer than `MOST`."""


@contextmanager
def limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Slow

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def seconds(read: Callable[[str], object], text: str, tries: int, wanted: float = 0.0) -> float:
    """CPU time, the best of so many tries. The first that takes no longer than `wanted` is the last."""
    best = MOST
    for _ in range(tries):
        began = time.process_time()
        try:
            with limited():
                read(text)
        except Slow:
            return MOST
        best = min(best, time.process_time() - began)
        if best <= wanted:
            break
    return best


def is_quadratic(read: Callable[[str], object], shape: Callable[[int], str]) -> bool:
    """Most texts are read so fast, or so evenly, that one look at a few characters tells it."""
    glance = seconds(read, shape(GLANCE), 1)
    if glance < LITTLE / 2:
        return False
    short = seconds(read, shape(SHORT), 1)
    if short >= MOST:
        return True
    if short < 2 * glance * SHORT / GLANCE:
        return False
    if short < ENOUGH:
        short = min(short, seconds(read, shape(SHORT), 4))
    if short < LITTLE:
        return False
    long = seconds(read, shape(LONG), 5, wanted=10 * short)
    return long >= MOST or long / short > 10


# Shapes.

PIECES = [*"\n \ta1-*_`#><.,:;!?'\"()[]{}/\\=+é“”|\u2028"]
PIECES += [
    "a!",
    "a ",
    "1 ",
    "1,",
    "- ",
    "()",
    "{}",
    "[]",
    "[{",
    "({",
    "a(",
    "a({",
    "})",
    "\n\n",
    "a\n",
    "\n ",
]
PIECES += ["<think>", "</think>", "<THINK> ", "score: ", "score: 0.", "Answer:", "```", "```\n", "```json\n"]
PIECES += [
    "{{",
    "}}",
    "{{from_step:",
    "x*",
    "1 + ",
    "'a'",
    '"a"',
    '["',
    '{"a":',
    "{a},",
    "next:",
    "satisfied:",
]
PIECES += ["[[]", "{[}]", "¹", "1/2", ". ", "//", "/*", "\\n", "https://a", "“a"]
FEW = [*' \na1*({["', "a ", "1,", "- ", "a({", "\n ", "[{", "<think>", "score: ", "```\n", '{"a":', "next:"]


@pytest.fixture(params=["few", pytest.param("all", marks=pytest.mark.nightly)])
def pieces(request) -> list[str]:
    """The pieces of texts: a selection, and at night all of them."""
    return FEW if request.param == "few" else PIECES


def repeated(start: str, piece: str, end: str) -> Callable[[int], str]:
    return lambda size: start + piece * (size // len(piece)) + end


def shapes(starts: list[str], pieces: list[str]) -> Iterator[tuple[str, Callable[[int], str]]]:
    for piece in dict.fromkeys(filter(None, pieces)):
        for start in starts:
            yield f"{start!r} + {piece!r}…", repeated(start, piece, "\x00")


# Every pattern.


def _used_as() -> Iterator[tuple[str, re.Pattern[str], set[str]]]:
    """Every pattern of every module: where it stands, and the methods that are called on it."""
    for info in pkgutil.walk_packages(tot_lab.__path__, "tot_lab."):
        if info.name.endswith(("__main__", "llama_server", "tiny.train")):
            continue
        module = importlib.import_module(info.name)
        path = str(module.__file__)
        if not path.endswith(".py"):
            continue
        used: dict[str, set[str]] = {}
        for node in ast.walk(ast.parse(Path(path).read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            method, owner = node.func.attr, node.func.value
            if isinstance(owner, ast.Subscript):
                owner = owner.value
            if method not in METHODS or not isinstance(owner, ast.Name):
                continue
            if owner.id != "re":
                used.setdefault(owner.id, set()).add(method)
            elif isinstance(node.args[0], ast.Constant):
                named = {word.arg: word.value for word in node.keywords}
                flags = named.get("flags") or next(iter(node.args[3 if method == "split" else 2 :]), None)
                if method in ("sub", "subn"):
                    flags = named.get("flags")
                flag = 0 if flags is None else eval(ast.unparse(flags), {"re": re})
                yield f"{info.name}:{node.lineno}", re.compile(node.args[0].value, flag), {method}
            else:
                assert info.name in GENERATED, f"{info.name}:{node.lineno} makes a pattern: what tries it?"
        for name, value in vars(module).items():
            for pattern in _within(value):
                yield f"{info.name}.{name}", pattern, used.get(name, {"search"})


def _within(value: object) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _within(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _within(item)


def patterns() -> dict[tuple[str, int, str], tuple[str, re.Pattern[str]]]:
    """By what they are and how they are used: a pattern that two modules share is tried once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            (pattern.pattern, pattern.flags, method): (where, pattern)
            for where, pattern, methods in _used_as()
            for method in methods
            if where.partition("[")[0] not in EXEMPT
        }


def applied(pattern: re.Pattern[str], method: str) -> Callable[[str], object]:
    if method == "finditer":
        return lambda text: sum(1 for _ in pattern.finditer(text))
    if method in ("sub", "subn"):
        return lambda text: pattern.sub("", text)
    return getattr(pattern, method)


class Sample:
    """Texts that a pattern's own syntax generates."""

    def __init__(self, pattern: re.Pattern[str], seed: int) -> None:
        self.random = Random(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parser = importlib.import_module("re._parser")
        self.tree = parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
        self.groups: dict[int, str] = {}

    def text(self, pumped: int | None = None, size: int = 0) -> str:
        """One; with its repetition number `pumped` as long as `size`."""
        self.pumped, self.size, self.seen = pumped, size, 0
        return self._of(self.tree)

    def _of(self, items: object) -> str:
        return "".join(self._one(str(kind), value) for kind, value in items)  # type: ignore[attr-defined]

    def _one(self, kind: str, value: object) -> str:
        if kind == "LITERAL":
            return chr(value)
        if kind == "NOT_LITERAL":
            return "a" if value != ord("a") else "b"
        if kind == "ANY":
            return self.random.choice("a ,")
        if kind == "IN":
            return self._in(value)
        if kind == "BRANCH":
            return self._of(self.random.choice(value[1]))
        if kind == "SUBPATTERN":
            self.groups[value[0]] = text = self._of(value[3])
            return text
        if kind == "ATOMIC_GROUP":
            return self._of(value)
        if kind == "GROUPREF":
            return self.groups.get(value, "")
        if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, inner = value
            self.seen += 1
            if self.seen - 1 == self.pumped and int(high) > 1:
                piece = self._of(inner)
                return piece * (min(int(high), self.size // max(len(piece), 1)))
            return "".join(
                self._of(inner) for _ in range(max(low, min(int(high), self.random.randint(0, 2))))
            )
        return ""  # an assertion, or the place of one

    def _in(self, members: object) -> str:
        spaces = {"CATEGORY_SPACE": " ", "CATEGORY_DIGIT": "1", "CATEGORY_WORD": "a"}
        found = []
        for kind, value in members:  # type: ignore[attr-defined]
            if str(kind) == "NEGATE":
                barred = re.compile("[" + "".join(_written(*one) for one in members[1:]) + "]")
                return next((char for char in "a1 ,(\n\"'`é" if not barred.match(char)), "")
            if str(kind) == "LITERAL":
                found.append(chr(value))
            elif str(kind) == "RANGE":
                found.append(chr(value[0]))
            else:
                found.append(spaces.get(str(value), ","))
        return self.random.choice(found)


def _written(kind: object, value: object) -> str:
    names = {"SPACE": r"\s", "DIGIT": r"\d", "WORD": r"\w"}
    if str(kind) == "LITERAL":
        return re.escape(chr(value))
    if str(kind) == "RANGE":
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    *negated, name = str(value).removeprefix("CATEGORY_").split("_")
    return names[name].upper() if negated else names[name]


def own_shapes(pattern: re.Pattern[str], samples: int) -> Iterator[tuple[str, Callable[[int], str]]]:
    """The beginnings of texts that it matches, again and again, and its repetitions at length."""
    pieces = {}
    for seed in range(samples):
        text = Sample(pattern, seed).text()[:200]
        for end in {*range(1, min(len(text), 12) + 1), len(text)}:
            pieces[text[:end]] = pieces[text[-end:]] = None
    yield from shapes([""], list(pieces))
    for seed in range(min(samples, 2)):
        repetitions = Sample(pattern, seed)
        repetitions.text()
        for number in range(min(repetitions.seen, 12)):

            def pumped(size: int, seed: int = seed, number: int = number) -> str:
                return Sample(pattern, seed).text(number, size)[: 2 * size] + "\x00"

            yield f"repetition {number}", pumped


def test_every_pattern_is_linear(pieces):
    found = patterns()
    assert len(found) > 200
    quadratic = []
    for (_, _, method), (where, pattern) in found.items():
        if isinstance(pattern.pattern, bytes):  # of a file's checksums
            continue
        read = applied(pattern, method)
        words = sorted(set(re.findall(r"[A-Za-z]{2,}", re.sub(r"\\.", " ", pattern.pattern))))[:6]
        mine = [f"{word}{after}" for word in words for after in ("", " ", ":", "(")]
        for about, shape in (
            *shapes([""], pieces),
            *shapes(["", *words[:2]], [*mine, " ", "\n", "1", "a"]),
            *own_shapes(pattern, samples=4 if pieces is PIECES else 1),
        ):
            if is_quadratic(read, shape):
                quadratic.append(f"{where} {method} {pattern.pattern[:60]!r}: {about}")
                break
    assert not quadratic, "\n".join(quadratic)


@pytest.mark.nightly
def test_the_search_finds_what_is_quadratic(pieces):
    """The patterns that were: without this the test above might be blind."""
    texts = (
        r"(?im)^[\s*_`#>-]*next[\s*_`]*:[\s*_`]*(\S.*)",
        r"(?s)([a-z][a-z0-9-]*)\((\{.*\})\)",
        r"\s*(\d+(?:\.\d+)?|[-+*/()])",
        r"(?s)\bsure\b.*\bimpossible\b",
    )
    for text in texts if pieces is PIECES else texts[::2]:
        pattern = re.compile(text)
        own = own_shapes(pattern, samples=4 if pieces is PIECES else 1)
        every = (*own, *shapes([""], ["sure ", *pieces]))
        assert any(is_quadratic(applied(pattern, "search"), shape) for _, shape in every), text


# Every reader.


def _domain_readers() -> Iterator[tuple[str, Callable[[str], object]]]:
    """Each method of a domain that reads a text, by its name and its arguments."""
    for kind in DOMAINS:
        task = HANDS[kind.kind]
        domain = task.domain
        for path in PATHS[kind.kind][1:]:
            given = {"task": task, "path": path, "count": 3, "tokens": (), "names": ["a 1", "b (2)", "c"]}
            if isinstance(domain, PuzzleDomain):
                given["puzzle"] = domain.puzzle(task)
            for name in dir(domain):
                if not name.startswith(("read_", "pool_")):
                    continue
                method = getattr(domain, name)
                taken = method.__code__.co_varnames[1 : method.__code__.co_argcount]
                if "text" not in taken and "texts" not in taken:
                    continue

                def read(text: str, method=method, taken=taken, given=given) -> object:
                    values = {**given, "text": text, "texts": [text]}
                    found = method(*(values[name] for name in taken))
                    return list(found) if isinstance(found, Iterator) else found

                yield f"{kind.kind}.{name}", read
            for name in ("answer", "complete", "assess", "state", "steps", "solvable"):
                method = getattr(domain, name)
                if name == "steps":
                    yield f"{kind.kind}.{name}", lambda text, m=method, path=path: m([*path, text])
                else:
                    yield (
                        f"{kind.kind}.{name}",
                        lambda text, m=method, path=path, task=task: m(task, [*path, text]),
                    )
            yield f"{kind.kind}.grade", lambda text, task=task: task.domain.grade(task, text)
            yield f"{kind.kind}.same", lambda text, task=task: task.domain.same(task, text)


LABELS = {"sure": 1.0, "likely": 0.5, "impossible": 0.0}
TOOL = tools.ToolSpec(name="deep-think", description="", parameters={})
KNOWN = {"calculator": "calculator"}
STEP = plans.PlanStep(id="s1", seq=1, type="analysis", instruction="x")
TABLE: dict[str, Callable[[str], object]] = {
    "read_score": scores.read_score,
    "read_confidence": scores.read_confidence,
    "read_out_of_ten": scores.read_out_of_ten,
    "read_label": lambda text: scores.read_label(text, LABELS),
    "read_choice": lambda text: votes.read_choice(text, 3),
    "read_scores": lambda text: scores.read_scores(text, ["alpha", "beta: 2", "the gamma (3)"]),
    "read_sibling_scores": lambda text: scores.read_sibling_scores(text, ["", "", ""]),
    "match_once": lambda text: judgements.match_once(
        ["alpha", text], [{"name": text}, {"": "alpha"}], ["b0", "b1"]
    ),
    "without_markup": markup.without_markup,
    "stated_choice": lambda text: choices.stated_choice(text, {"A": "red", "B": "blue sky"}),
    "read_list": lists.read_list,
    "find_list": lists.find_list,
    "code_blocks": code.code_blocks,
    "fenced_blocks": lambda text: list(code.fenced_blocks(text)),
    "normalize": answers.normalize,
    "undecorated": decoration.undecorated,
    "read_json": json_values.read_json,
    "find_json": lambda text: list(json_values.find_json(text)),
    "split_thinking": thinking.split_thinking,
    "read_expression": mathematics.read_expression,
    "expressions.answer": expressions.answer,
    "repaired": lambda text: json_values.repaired("{" + text, json_values.Work(text)),
    "text_tool_calls": lambda text: text_tool_calls(f"name {text}", KNOWN, "0"),
    "read_arguments": read_arguments,
    "read_finish_reason": finish_reasons.read_finish_reason,
    "next_action": next_action,
    "with_edited_text": lambda text: plans.with_edited_text(STEP, text),
    "filled_in": lambda text: plans.filled_in(text.replace("from_step", "from"), STEP, {}),
    "read_category": categories.read_category,
    "categorise": categories.categorise,
    "read_verdict": verdicts.read_verdict,
    "without_verdict": verdicts.without_verdict,
    "read_name": lambda text: names.read_name(text, {"tree-of-thought": 1, "steps": 2}, "kind"),
    "read_needs": lambda text: tool_needs.read_needs(text, AvailableTools({TOOL.name: TOOL}, {}, KNOWN, [])),
    "turn_of": lambda text: conversation.turn_of("0.0", Reply(text), KNOWN),
    "turn_of a native call": lambda text: conversation.turn_of(
        "0.0", Reply(tool_calls=(ToolCall("c", "calculator", text),)), KNOWN
    ),
    "as_recorded": lambda text: conversation.as_recorded(
        conversation.Turn("0.0", "x"), Thought("0.0", "0", text), KNOWN
    ),
    "is_requested_in": TOOL.is_requested_in,
    "tool_name": tools.tool_name,
    "value_of": value_of,
    "altered": lambda text: research.altered(text, "a page"),
    "scrubbed": scrubbing.scrubbed,
    "holds_secret": lambda text: scrubbing.holds_secret(
        text, "a key of more than forty characters, in a text"
    ),
    "clean": scrubbing.clean,
    **{f"{form.__name__}": _form(form).read for form in (Approaches, Development, Convergence)},
}
"""Readers outside the domains."""


def _markdown_readers() -> Iterator[tuple[str, Callable[[str], object]]]:
    for name, function in vars(markdown).items():
        own = callable(function) and getattr(function, "__module__", "") == markdown.__name__
        own = own and name != "to_html"  # markdown-it's own parser is quadratic; `sanitize` bounds its texts
        if own and not name.startswith("_") and len(inspect.signature(function).parameters) == 1:
            yield f"markdown.{name}", function


def readers() -> list[tuple[str, Callable[[str], object]]]:
    return [*TABLE.items(), *_domain_readers(), *_markdown_readers()]


@pytest.mark.parametrize(
    ("name", "read"), readers(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_reader_is_linear(name, read, pieces):
    starts = ["", "{", '{"a": "'] if name in ("find_json", "repaired") else [""]
    for about, shape in shapes(starts, pieces):
        assert not is_quadratic(read, shape), f"{name} on {about}"


def test_every_public_reader_of_core_is_in_the_table():
    rooms = (json_values, lists, mathematics, names, scores, thinking, verdicts, votes)
    named = {name for room in rooms for name in vars(room) if name.startswith(("read_", "find_", "split_"))}
    assert named - {"read_label_logprobs"} <= set(TABLE)


@pytest.mark.parametrize(
    "kind", [kind for kind in MODELS if issubclass(kind, Simulated)], ids=lambda k: k.kind
)
def test_a_simulated_model_reads_any_prompt_in_linear_time(kind, pieces):
    model = kind()

    def read(text: str) -> object:
        call = Call("0", "value", (Message("user", f"{TASK.question}\nsure or impossible? {text}"),))
        asking = model(call)
        try:
            asking.send(None)
        except StopIteration as end:
            return end.value
        finally:
            asking.close()

    for about, shape in shapes([""], [*pieces, "sure ", "s1 [completed]\n", "yes ", "Candidate 1\n", "1. "]):
        assert not is_quadratic(read, shape), about


@pytest.mark.nightly
@pytest.mark.parametrize("piece", ["a!", "write ", "first ", "then ", " ", "1. "])
def test_what_is_exempt_is_bounded(piece):
    """A megabyte takes no longer than the part that is looked at."""
    text = piece * (1_000_000 // len(piece))
    assert seconds(categories.hits, text, 3, wanted=0.6) < 0.6
    assert categories.LOOKED_AT <= 4_000


@pytest.mark.nightly
def test_finding_json_in_brackets_takes_a_bounded_time():
    """40,000 characters took 2.7 s on the machine where 0.25 s are measured now."""
    for start, piece in (("{", "{a},"), ("", "{a}"), ("", "['] "), ("{", "''"), ("", "[]"), ("{", "a")):
        text = repeated(start, piece, "")(LONG)
        assert seconds(TABLE["find_json"], text, 3, wanted=0.8) < 0.8, piece
        assert seconds(TABLE["text_tool_calls"], text, 3, wanted=0.8) < 0.8, piece


def test_what_a_word_reads():
    """Named here, so that a reader that moves is missed: the imports above hold the private ones."""
    assert react._WORD.search("word")
