"""A simulated writer of passages whose paragraphs end in given sentences.

It reads only the text of a prompt and the sampling settings, never the purpose of a call or its node. Its
judgements depend on how many paragraphs have the same hero, and on how many end with their sentences. A plan
with one hero leads to a passage with one hero, so that voting and planning have an effect.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache

from tot_lab.domains.creative_writing import creative_writing
from tot_lab.domains.player import Player, Responder, candidates_in
from tot_lab.models.simulated import JUDGING, Probability, without_candidates

_FORMS = (
    ("none", re.compile(r"the passage is written", re.I)),
    *JUDGING,
    ("value", re.compile(r"score: N/10")),
    ("both", re.compile(r"make a plan first", re.I)),
    ("plans", re.compile(r"(\d{1,4}) different plans", re.I)),
    ("passages", re.compile(r"(\d{1,4}) different passages", re.I)),
    ("plan", re.compile(r"write a plan", re.I)),
    ("passage", re.compile(r"write the passage", re.I)),
)
_SENTENCES = re.compile(r"^1\. (.+)\n2\. (.+)\n3\. (.+)\n4\. (.+)$", re.M)
_PASSAGE = re.compile(r"^Passage:\n", re.M)
_PLAN = re.compile(r"^Plan:\n", re.M)

_HEROES = (
    "the retired sailor",
    "the young chemist",
    "the night porter",
    "the widow from number nine",
    "the substitute teacher",
    "the inventor of the folding bath",
    "the mayor's nephew",
    "the last telegraph clerk",
)
_DEEDS = (
    "went through the old papers once more",
    "sat down by the window and waited",
    "set out before anybody else was awake",
    "asked the neighbours what they remembered",
    "told the story from the beginning",
    "noticed what all the others had missed",
    "walked the whole length of the harbour",
    "opened the parcel at last",
)


class _Responder(Responder["SimCreativeWriting"]):
    """Writes plans and passages for the closing sentences in the prompt."""

    forms = _FORMS
    random_ties = True

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        found = _SENTENCES.search(self.text)
        return found.groups() if found else ()

    @cached_property
    def given(self) -> str:
        """The plan to follow, or ""."""
        shown = without_candidates(self.text).rpartition("\n\n")[0]
        return _PLAN.split(shown)[-1] if _PLAN.search(shown) else ""

    @cached_property
    def candidates(self) -> list[str]:
        """The texts to judge."""
        listed = self.text[len(without_candidates(self.text)) :]
        return [_text(one) for one in (candidates_in(listed) if self.form in ("vote", "joint") else [listed])]

    def understands(self) -> bool:
        return bool(self.sentences) or self.form == "value"

    # Writing.

    def plans(self) -> str:
        """Return different plans."""
        return _numbered_list("Plan", [self.plan() for _ in range(self.count)])

    def passage(self) -> str:
        return self.follow(self.given)

    def passages(self) -> str:
        """Return different passages."""
        return _numbered_list("Passage", [self.passage() for _ in range(self.count)])

    def both(self) -> str:
        """Return a plan, and a passage that follows it."""
        plan = self.plan()
        return f"Plan:\n{plan}\n\nPassage:\n{self.follow(plan)}"

    def heroes(self) -> list[str]:
        """Return one hero for each of the four paragraphs."""
        heroes = [self.random.choice(_HEROES)]
        while len(heroes) < 4:
            same = self.random.random() < self.player.skill
            heroes.append(heroes[-1] if same else self.random.choice(_HEROES))
        return heroes

    def plan(self) -> str:
        lines = [f"{hero} {self.random.choice(_DEEDS)}." for hero in self.heroes()]
        return "\n".join(f"{k}. {line.capitalize()}" for k, line in enumerate(lines, 1))

    def follow(self, plan: str) -> str:
        """Return a passage with the heroes of `plan`. If `plan` does not name four, the heroes are new."""
        heroes = [hero for line in plan.split("\n") if (hero := _hero(line))]
        heroes = heroes if len(heroes) == 4 else self.heroes()
        paragraphs = []
        for hero, sentence in zip(heroes, self.sentences, strict=True):
            kept = self.random.random() < self.player.skill
            last = sentence if kept else f"{sentence[:-1]}, or so it is told."
            first, second = self.random.sample(_DEEDS, 2)
            paragraphs.append(f"That day {hero} {first}. Later on {hero} {second}. {last}")
        return "\n\n".join(paragraphs)

    # Judging.

    def scores(self) -> list[float]:
        """Return the player's score of each text, 0–1."""
        if self.random.random() < self.player.noise:
            return [self.random.random() for _ in self.candidates]
        return [_quality(text, self.sentences) for text in self.candidates]

    def value(self) -> str:
        """Return the score of a text, from 1 to 10."""
        return f"I counted heroes and endings.\nscore: {1 + round(9 * self.scores()[0])}/10"

    def believes(self) -> bool:
        return self.scores()[0] > 0.99

    def certainty(self) -> float:
        return 0.05 + 0.9 * self.scores()[0]


class SimCreativeWriting(Player):
    """A simulated writer of passages.

    If a call requests log-probabilities of yes or no, the reply is one token, yes or no.
    """

    kind = "sim/creative_writing"
    responder = _Responder
    garbled = ("", "\n", "   ", "\n\n")
    unknown = "I am a simulated writer of passages, and I do not understand this prompt."

    skill: Probability = 0.8
    """Probability that a paragraph ends with its exact sentence, and that a line of a plan keeps the hero of
    the line before it, 0–1.

    Without a plan, the paragraphs keep the hero with this probability. A hero that is not kept is chosen at
    random.
    """

    noise: Probability = 0.2
    """Probability that a judgement or a vote is random, 0–1."""

    garble: Probability = 0.0
    """Probability that a reply is empty, 0–1."""


def _numbered_list(name: str, texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    return "\n\n".join(f"{name} {k}:\n{text}" for k, text in enumerate(texts, 1))


def _hero(text: str) -> str | None:
    """Return the first hero named in a text, or `None`."""
    found = [(text.lower().find(hero), hero) for hero in _HEROES if hero in text.lower()]
    return min(found)[1] if found else None


@lru_cache(maxsize=4096)
def _quality(text: str, sentences: tuple[str, ...]) -> float:
    """Return the quality of a plan or passage, 0–1. It is the share of the most frequent hero among the lines
    that name one. For a passage with known sentences, it is the mean of this share and the grade.
    """
    heroes = [hero for line in text.split("\n") if (hero := _hero(line))]
    coherent = Counter(heroes).most_common(1)[0][1] / len(heroes) if heroes else 0.0
    if not sentences or re.match(r"1\. ", text):
        return coherent
    task = creative_writing(sentences)
    return (coherent + (task.grade(text) or 0.0)) / 2


def _text(shown: str) -> str:
    """Return the passage in a candidate, or else the plan, or else the whole candidate."""
    for heading in (_PASSAGE, _PLAN):
        if heading.search(shown):
            return heading.split(shown)[-1].strip()
    return shown.strip()
