"""Words that were replaced do not come back: in names, docstrings, comments and messages.

Data keeps its words: names in files and cache keys, and text that a model reads.
"""

import ast
import io
import re
import tokenize

import pytest
from support import ROOT

FILES = sorted(path for path in (ROOT / "tot_lab").rglob("*.py") if "node_modules" not in path.parts)
TEXTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md")]
TEXTS += sorted((ROOT / "docs").rglob("*.md"))

FUNCTIONS = {
    "happen": "emit",
    "every": "gather",
    "within": "with_budget",
    "timed": "with_timeout",
    "editing": "map_steps",
    "along": "intercept",
    "anytime": "anytime_performance",
}
"""Names of functions, and what replaced them."""

NAMES = {
    "Companion": "Interceptor",
    "companion": "interceptor",
    "Asked": "PendingCall or CallRow",
    "Hands": "AvailableTools",
    "Wire": "CallObserver",
    "wire": "observer",
    "Purse": "SpendLimiter",
    "purse": "spend_limiter",
    "Gate": "RateLimiter",
    "gate": "limiter",
    "told": "a name for what it holds or returns",
    "said": "a name for what it holds or returns",
    "saying": "a name for what it holds or returns",
    "telling": "a name for what it holds or returns",
    "tasks_needed": "required_sample_size",
    "difference_seen": "minimum_detectable_difference",
    "plot_frontier": "plot_pareto",
    "at_cost": "at_matched_cost",
    "in_bulk": "gc_paused",
    "unread": "unreadable",
    "Plans": "PlanStore",
    "Compare": "CompareExplorer",
}
"""Names of classes, functions, arguments, attributes and variables, and what replaced them."""

WORDS = {*FUNCTIONS, *NAMES}

PHRASES = {
    r"(?i)(what|which) (is|was|are|were) (said|told|asked|none)\b": "name the call, reply or record",
    r"(?i)(came|comes|come) of it": "the outcome, the result",
    r"(?i)(is|are|was|were|be) told\b(?! apart)": "name who receives what",
    r"\bnone = ": "`None` means …",
    r"(?<!there )\b(is|are) none\b": "`None`, empty, or what is missing",
    r"anybody's own|a person's own": "a user's",
}
"""Phrases of the old dialect in docstrings, comments and messages, and what to write."""

READ_BY_MODELS = (
    "or so it is told",
    "Observe: hold what came of it",
    "The plan, and what came of it so far",
    "State what is given and what is asked",
    "*There is none.*",
)
"""Text that a model reads or writes. Cache keys depend on it."""


def names_in(source):
    """Defined names, their lines, and whether they are functions."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno, not isinstance(node, ast.ClassDef)
            case ast.arg(arg=name) | ast.alias(asname=str(name)):
                yield name, node.lineno, False
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno, False


def texts_in(source):
    """Docstrings, other strings and comments with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield " ".join(token.string.split()), token.start[0]


def replaced_names(source):
    if not WORDS.intersection(word.lstrip("_") for word in re.findall(r"\w+", source)):
        return []  # which spares a syntax tree
    found = []
    for name, line, is_function in names_in(source):
        instead = NAMES.get(name.lstrip("_")) or (FUNCTIONS.get(name) if is_function else None)
        if instead:
            found.append(f"{line}: {name}: use {instead}")
    return found


def replaced_phrases(texts):
    return [
        f"{line}: {found[0]!r}: {instead}"
        for text, line in texts
        if not any(known in text for known in READ_BY_MODELS)
        for phrase, instead in PHRASES.items()
        for found in re.finditer(phrase, text)
    ]


@pytest.mark.slow
def test_names_are_those_of_the_field():
    found = [f"{path.relative_to(ROOT)}:{one}" for path in FILES for one in replaced_names(path.read_text())]
    assert not found, "\n".join(found)


def holds_a_phrase(source):
    """Whether a file needs to be split into its strings and comments, which takes long."""
    text = " ".join(source.split())
    return any(re.search(phrase, text) for phrase in PHRASES)


def test_docstrings_comments_and_messages_are_plain():
    found = [
        f"{path.relative_to(ROOT)}:{one}"
        for path in FILES
        if holds_a_phrase(source := path.read_text())
        for one in replaced_phrases(texts_in(source))
    ]
    for path in TEXTS:
        lines = ((line, number) for number, line in enumerate(path.read_text().splitlines(), 1))
        found += [f"{path.name}:{one}" for one in replaced_phrases(lines)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "def told(run): ...",
        "async def within(x): ...",
        "class _Wire: ...",
        "for unread in x: ...",
        "self.purse = 1",
        "def f(companion): ...",
        "import x as gate",
    ],
)
def test_a_replaced_name_is_found(source):
    assert replaced_names(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""What was said of a run."""',
        "x = 1  # the caller is told of it",
        'raise ValueError(f"{x} is none")',
    ],
)
def test_a_replaced_phrase_is_found(source):
    assert replaced_phrases(texts_in(source))


def test_ordinary_english_is_left_alone():
    source = '"""Return every node within a budget. Returns `None` if there is none. Kinds are told apart."""'
    assert not replaced_phrases(texts_in(source))
    assert not replaced_names("every = within = along = told_apart = None")
