"""Questions of one to three hops over a collection of documents (after HotpotQA, Yang et al. 2018).

The documents describe an invented world, so models cannot know the answers. The world is generated from word
lists and a fixed pseudo-random sequence and is the same on every machine. Each fact is in one document, among
similar facts, and its words differ from those of the question. An answer is right if it is the requested
name, ignoring case, punctuation, articles and words such as `river`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar

from tot_lab.core.reading.answers import final_answer
from tot_lab.core.task import Task
from tot_lab.core.tool import Tool
from tot_lab.domains.multi_hop.documents import document_tools
from tot_lab.domains.stated import StepwiseDomain

T = TypeVar("T")

COUNT = 120
"""Number of questions, 40 for each number of hops."""


class Thing(NamedTuple):
    """A person, place or object in the invented world."""

    kind: str
    """Kind of the thing: ship, person, town, bridge, river or hills."""

    name: str

    @property
    def phrase(self) -> str:
        """The phrase for the thing in sentences and questions."""
        return _PHRASES.get(self.kind, "{}").format(self.name)


class Relation(NamedTuple):
    """A relation between two things."""

    name: str

    of: str
    """Kind of the first thing."""

    to: str
    """Kind of the second thing."""

    question: str
    """Template of the phrase for the second thing in questions, with `{x}` for the first thing."""

    sentence: str
    """Template of the sentence for the fact in documents, with `{x}` and `{y}` for the two things."""


class Hops(NamedTuple):
    """A question about the thing that is reached from `start` by following `relations` in order."""

    start: Thing
    relations: tuple[Relation, ...]

    @property
    def question(self) -> str:
        """The text of the question."""
        phrase = self.start.phrase
        for relation in self.relations:
            phrase = relation.question.format(x=phrase)
        return f"What is the name of {phrase}?"


_PHRASES = {
    "ship": "the ship {}",
    "river": "the river {}",
    "bridge": "the {} Bridge",
    "hills": "the {} hills",
}
_TITLES = {"ship": "{} (ship)", "river": "{} (river)", "town": "{} (town)", "bridge": "{} Bridge"}

RELATIONS = (
    Relation("captain", "ship", "person", "the captain of {x}", "{y} commands {x}."),
    Relation("yard", "ship", "town", "the town where {x} was built", "{x} was launched at {y}."),
    Relation(
        "birthplace", "person", "town", "the town where {x} was born", "{x} came into the world in {y}."
    ),
    Relation("teacher", "person", "person", "the teacher of {x}", "{x} learned the trade from {y}."),
    Relation("river", "town", "river", "the river of {x}", "{x} lies on {y}."),
    Relation("mayor", "town", "person", "the mayor of {x}", "{x} is governed by {y}."),
    Relation("builder", "bridge", "person", "the builder of {x}", "{x} is the work of {y}."),
    Relation("place", "bridge", "town", "the town where {x} stands", "{x} is a landmark of {y}."),
    Relation("hills", "river", "hills", "the hills where {x} rises", "{x} comes down from {y}."),
)

_FIRST = ("Alma", "Bastian", "Corin", "Delia", "Edda", "Falk", "Gesa", "Henno", "Ilse", "Jorin")
_FAMILY = ("Tarrow", "Quill", "Hasp", "Windle", "Orchard", "Pike", "Sallow", "Thorne", "Brack", "Mellow")
_TOWNS = ("Velmoor", "Marnwick", "Ossholm", "Tarnstede", "Kelby", "Brunford", "Holtham", "Fenwell", "Lorrick",
          "Sidcombe", "Ambry", "Durncliff", "Eastering", "Gorwen", "Hexmere", "Ivelstow", "Jarrowmouth",
          "Nethertoft", "Pellow", "Rushkirk")  # fmt: skip
_RIVERS = ("Orle", "Sarn", "Vessa", "Tolm", "Brindle", "Wend", "Luthe", "Callow")
_HILLS = ("Skarn", "Thistle", "Umber", "Fallow", "Raven", "Chalk")
_BRIDGES = ("Candle", "Weaver", "Lantern", "Tanner", "Crooked", "Salt", "Miller", "Thrush", "Bishop",
            "Copper", "Willow", "Anchor")  # fmt: skip
_SHIPS = ("Grey Heron", "Merry Otter", "Patient Swan", "Silver Perch", "Bold Curlew", "Night Ferret",
          "Amber Gull", "Quiet Plover", "Red Marten", "Winter Goose", "Proud Beetle", "Lucky Tern",
          "Green Newt", "Brave Lapwing", "Old Cormorant")  # fmt: skip
_CRAFTS = ("rope", "glass", "felt", "cheese", "bells", "paper", "barrels", "candles", "salt fish", "clocks")
_TRADES = ("a shipwright", "a mason", "a pilot", "a surveyor", "a carpenter", "a chandler")


class MultiHop(StepwiseDomain):
    """Questions over the documents of a small invented world.

    `multi_hop` makes its tasks. `tl.domains.multi_hop_tools()` makes the tools that search and open the
    documents.
    """

    kind = "multi_hop"
    player = "sim/agent"

    grading: Literal["exact"] = "exact"
    """Always `exact`."""

    step_form = (
        "A step is one fact in a sentence of its own, which names what it speaks of. Once the name that is "
        "asked for is known, the step is `Answer: ` and the name."
    )

    @classmethod
    def task_factory(cls) -> Callable[..., Task]:
        return multi_hop

    @classmethod
    def example_tasks(cls) -> Callable[..., list[Task]]:
        return multi_hop_tasks

    @classmethod
    def tools(cls) -> tuple[Tool, ...]:
        return multi_hop_tools()

    def holds(self, step: str) -> bool | None:
        """Return whether the facts in `step` are true. Returns `None` if it contains none in the words of the
        documents.
        """
        found = facts_in(step)
        known = world().facts
        return all(known.get(of) == to for of, to in found.items()) if found else None

    def same(self, task: Task, answer: str) -> Hashable:
        return bare_name(answer)

    def grade(self, task: Task, answer: str) -> float | None:
        if task.reference is None:
            return None
        return float(bare_name(final_answer(answer) or answer) == bare_name(str(task.reference)))


def multi_hop(number: int) -> Task:
    """Make the task of question `number`, from 1 to 120. The number of hops cycles through 1, 2 and 3."""
    if number not in range(1, COUNT + 1):
        raise ValueError(f"Unknown question: got number={number!r}. Pass a number from 1 to {COUNT}.")
    hops = _questions()[number - 1]
    return Task(
        domain=MultiHop(),
        question=hops.question,
        reference=answer_of(hops).name,
        id=f"multi_hop-{len(hops.relations)}-{number}",
    )


def multi_hop_tasks(count: int, *, hops: int | None = None) -> list[Task]:
    """Make the tasks of the first `count` of 120 questions.

    Args:
        count: Number of tasks.
        hops: Restricts the questions to those with 1, 2 or 3 hops. There are 40 of each.
    """
    if hops not in (None, 1, 2, 3):
        raise ValueError(f"hops must be 1, 2, 3 or None: got {hops}.")
    numbers = range(1, COUNT + 1) if hops is None else range(hops, COUNT + 1, 3)
    if count not in range(1, len(numbers) + 1):
        raise ValueError(f"count must be from 1 to {len(numbers)}, the number of questions: got {count!r}.")
    return [multi_hop(number) for number in numbers[:count]]


def multi_hop_documents() -> Mapping[str, str]:
    """Return the documents that answer the questions, by title."""
    return world().documents


# The world.


def multi_hop_tools() -> tuple[Tool, Tool]:
    """Make the tools `search` and `open` over the documents, for the `tools` of a lab."""
    return document_tools(multi_hop_documents())


class World(NamedTuple):
    """The world that the questions are about."""

    facts: Mapping[tuple[str, Thing], Thing]
    """Maps (name of a relation, first thing) to the second thing."""

    documents: Mapping[str, str]
    """The texts of the documents by title."""


@lru_cache(maxsize=1)
def world() -> World:
    """Return the world, which is generated at the first use."""
    things = _things()
    facts: dict[tuple[str, Thing], Thing] = {}
    for relation in RELATIONS:
        for thing in things[relation.of]:
            others = [other for other in things[relation.to] if other != thing]
            facts[relation.name, thing] = _pick(others, relation.name, thing.name)
    documents = {
        title_of(thing): " ".join(_sentences(thing, facts, things))
        for kind in ("ship", "person", "town", "bridge", "river")
        for thing in things[kind]
    }
    for ship in things["ship"][::2]:  # distractors: inns with the names of ships
        town = _pick(things["town"], "inn", ship.name)
        keeper = _pick(things["person"], "keeper", ship.name)
        documents[f"{ship.name} (inn)"] = (
            f"The inn {ship.name} is in {town.name}. {keeper.name} keeps it. Sailors tell there of "
            f"a captain from {_pick(things['town'], 'tale', ship.name).name}."
        )
    return World(MappingProxyType(facts), MappingProxyType(dict(sorted(documents.items()))))


def title_of(thing: Thing) -> str:
    """Return the title of the document about a thing."""
    return _TITLES.get(thing.kind, "{}").format(thing.name)


def _things() -> dict[str, list[Thing]]:
    people = [f"{first} {_FAMILY[(3 * k + 7 * j) % 10]}" for j in range(3) for k, first in enumerate(_FIRST)]
    names = {
        "ship": _SHIPS, "person": people, "town": _TOWNS, "bridge": _BRIDGES, "river": _RIVERS,
        "hills": _HILLS,
    }  # fmt: skip
    return {kind: [Thing(kind, name) for name in known] for kind, known in names.items()}


def _sentences(
    thing: Thing, facts: Mapping[tuple[str, Thing], Thing], things: Mapping[str, Sequence[Thing]]
) -> Iterator[str]:
    """Return an iterator over the sentences of a document: what the thing is, its facts, and distractors."""

    def other(kind: str, key: str) -> str:
        return _pick([one for one in things[kind] if one != thing], key, thing.name).phrase

    stated = [
        relation.sentence.format(x=thing.phrase, y=facts[relation.name, thing].phrase)
        for relation in RELATIONS
        if relation.of == thing.kind
    ]
    stated = [sentence[0].upper() + sentence[1:] for sentence in stated]
    opening, aside = {
        "ship": (
            f"{thing.name} is a ship of two masts.",
            f"{other('person', 'mate')} was once her mate, and she has often called at "
            f"{other('town', 'call')}.",
        ),
        "person": (
            f"{thing.name} is {_pick(_TRADES, 'trade', thing.name)}.",
            f"Friends are {other('person', 'friend')} and {other('person', 'guest')}; there is a house of "
            f"the family in {other('town', 'house')}.",
        ),
        "town": (
            f"{thing.name} is a town known for its {_pick(_CRAFTS, 'craft', thing.name)}.",
            f"Its last mayor but one was {other('person', 'mayor before')}; a road leads to "
            f"{other('town', 'road')}.",
        ),
        "bridge": (
            f"{thing.name} Bridge is a bridge of stone.",
            f"{other('person', 'toll')} once took the toll. A song mistakes it for "
            f"{other('bridge', 'song')}.",
        ),
        "river": (
            f"{thing.name} is a river that freezes in hard winters.",
            f"Of old it was said to come from {other('hills', 'old')}, and {other('person', 'map')} drew it.",
        ),
    }[thing.kind]
    return iter((opening, *stated, aside))


@lru_cache(maxsize=1)
def _questions() -> tuple[Hops, ...]:
    """Return all questions. The number of hops cycles through 1, 2 and 3."""
    found: list[list[Hops]] = [[], [], []]
    things = _things()
    for start in (thing for kind in ("ship", "bridge", "person", "town") for thing in things[kind]):
        waiting = [Hops(start, ())]
        while waiting:
            hops = waiting.pop()
            here = _walk(hops)
            for relation in RELATIONS:
                further = Hops(start, (*hops.relations, relation))
                if relation.of != here[-1].kind or world().facts[relation.name, here[-1]] in here:
                    continue
                found[len(further.relations) - 1].append(further)
                if len(further.relations) < 3:
                    waiting.append(further)
    chosen = [sorted(level, key=lambda hops: _hash(hops.question))[: COUNT // 3] for level in found]
    return tuple(hops for level in zip(*chosen, strict=True) for hops in level)


def _walk(hops: Hops) -> list[Thing]:
    here = [hops.start]
    for relation in hops.relations:
        here.append(world().facts[relation.name, here[-1]])
    return here


def answer_of(hops: Hops) -> Thing:
    """Return the answer to a question."""
    return _walk(hops)[-1]


def _pick(among: Sequence[T], *key: str) -> T:
    return among[_hash(*key) % len(among)]


def _hash(*key: str) -> int:
    """Return a pseudo-random number, equal on every machine."""
    return int.from_bytes(hashlib.sha256(" ".join(key).encode()).digest()[:6], "big")


# Reading.

_NAMES = {"ship": r"[A-Z][a-z]+ [A-Z][a-z]+", "person": r"[A-Z][a-z]+ [A-Z][a-z]+"}
_BARE = re.compile(r"\b(?:the|a|an|river|hills?|town|of|ship|bridge)\b|[^\w\s]")


@lru_cache(maxsize=4096)  # called again for each fact of a question
def facts_in(text: str) -> Mapping[tuple[str, Thing], Thing]:
    """Return the facts that `text` states in the words of the documents, true or not.

    Of two facts that contradict each other, only the last is returned.
    """
    found = [(match, relation) for relation in RELATIONS for match in _pattern(relation).finditer(text)]
    found.sort(key=lambda one: one[0].start())
    return MappingProxyType(
        {
            (relation.name, Thing(relation.of, match["x"])): Thing(relation.to, match["y"])
            for match, relation in found
        }
    )


def hops_in(text: str) -> Hops | None:
    """Parse the first question of this domain in `text`. Returns `None` if it is not found."""
    for question in _QUESTION.findall(text):
        hops = _parse_phrase(question)
        if hops is not None:
            return hops
    return None


_QUESTION = re.compile(r"What is the name of ([^?\n]{3,300})\?")


def _parse_phrase(phrase: str) -> Hops | None:
    relations: list[Relation] = []
    while True:
        for relation in RELATIONS:
            before, _, after = relation.question.partition("{x}")
            if phrase.startswith(before) and phrase.endswith(after):
                inner = phrase[len(before) : len(phrase) - len(after)]
                if not relations or relations[-1].of == relation.to:
                    relations.append(relation)
                    phrase = inner
                    break
        else:
            break
    if not relations:
        return None
    match = re.fullmatch(_thing(relations[-1].of, "x"), phrase)
    return None if match is None else Hops(Thing(relations[-1].of, match["x"]), tuple(reversed(relations)))


def _thing(kind: str, group: str) -> str:
    name = f"(?P<{group}>{_NAMES.get(kind, '[A-Z][a-z]+')})"
    return _PHRASES.get(kind, "{}").format(name).replace("the ", "[Tt]he ")


@lru_cache(maxsize=16)
def _pattern(relation: Relation) -> re.Pattern[str]:
    """Return a pattern for the sentences that state a relation, with the groups `x` and `y`."""
    _, first, between, second, after = re.split(r"(\{[xy]\})", relation.sentence)
    kinds = {"{x}": relation.of, "{y}": relation.to}
    parts = (_thing(kinds[slot], slot[1]) for slot in (first, second))
    return re.compile(rf"\b{next(parts)}{re.escape(between)}{next(parts)}{re.escape(after)}")


def bare_name(answer: str) -> str:
    """Normalise a name: remove case, punctuation, articles, and words such as `river`."""
    return " ".join(_BARE.sub(" ", answer.casefold()).split())
