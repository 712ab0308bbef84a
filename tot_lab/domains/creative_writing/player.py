"""A simulated writer of passages whose paragraphs end in given sentences.

It reads only the text of a prompt and the sampling settings, never the purpose of a call or its node. Its
judgements count how many paragraphs have the same hero and end in their sentences. A plan with one hero leads
to a passage with one hero, so that voting and planning have an effect.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple

from tot_lab.core.calls import Call, TokenLogprob
from tot_lab.domains.creative_writing import creative_writing
from tot_lab.models.simulated import JUDGING, Share, Simulated, without_candidates

_KINDS = (  # kinds of prompts, by their closing words
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
_GARBLED = ("", "\n", "   ", "\n\n")
_UNKNOWN = "I am a simulated writer of passages, and I do not understand this prompt."

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


class _Request(NamedTuple):
    """A parsed prompt."""

    kind: str
    """One of `_KINDS`, or "" if the prompt is not understood."""

    number: int = 1
    """Number of texts requested."""

    sentences: tuple[str, ...] = ()
    """The closing sentences."""

    plan: str = ""
    """The plan to follow."""

    candidates: tuple[str, ...] = ()
    """The texts to judge."""


class SimCreativeWriting(Simulated):
    """A simulated writer of passages.

    If a call requests log-probabilities of yes or no, the reply is that one token.
    """

    kind = "sim/creative_writing"

    skill: Share = 0.8
    """Probability that a paragraph ends in its sentence word for word, and that a line of a plan, or a
    paragraph without a plan, continues with the same hero, 0–1."""

    noise: Share = 0.2
    """Probability that a judgement or a vote is random, 0–1."""

    garble: Share = 0.0
    """Share of replies that are empty, 0–1."""

    def written(self, call: Call, random: Random) -> str | Sequence[TokenLogprob]:
        request = _parse_prompt(call.prompt)
        if request.kind == "":
            return _UNKNOWN
        if request.kind == "judge" and call.logprobs:
            return [self._verdict(request, random)]
        if random.random() < self.garble:
            return random.choice(_GARBLED)
        text = "none"
        if request.kind in ("plan", "plans"):
            text = _listed("Plan", [self._plan(random) for _ in range(request.number)])
        elif request.kind in ("passage", "passages"):
            text = _listed(
                "Passage", [self._passage(request, request.plan, random) for _ in range(request.number)]
            )
        elif request.kind == "both":
            plan = self._plan(random)
            text = f"Plan:\n{plan}\n\nPassage:\n{self._passage(request, plan, random)}"
        elif request.kind == "value":
            text = (
                f"I counted heroes and endings.\nscore: {1 + round(9 * self._scores(request, random)[0])}/10"
            )
        elif request.kind == "judge":
            text = "yes" if self._scores(request, random)[0] > 0.99 else "no"
        elif request.kind == "joint":
            text = json.dumps([round(score, 2) for score in self._scores(request, random)])
        elif request.kind == "vote":
            scores = self._scores(request, random)
            text = f"best: {random.choice([k for k, s in enumerate(scores, 1) if s == max(scores)])}"
        return text

    def _heroes(self, random: Random) -> list[str]:
        """One hero for each of the four paragraphs."""
        heroes = [random.choice(_HEROES)]
        while len(heroes) < 4:
            heroes.append(heroes[-1] if random.random() < self.skill else random.choice(_HEROES))
        return heroes

    def _plan(self, random: Random) -> str:
        lines = [f"{hero} {random.choice(_DEEDS)}." for hero in self._heroes(random)]
        return "\n".join(f"{k}. {line.capitalize()}" for k, line in enumerate(lines, 1))

    def _passage(self, request: _Request, plan: str, random: Random) -> str:
        heroes = [hero for line in plan.split("\n") if (hero := _hero(line))]
        heroes = heroes if len(heroes) == 4 else self._heroes(random)
        paragraphs = []
        for hero, sentence in zip(heroes, request.sentences, strict=True):
            last = sentence if random.random() < self.skill else f"{sentence[:-1]}, or so it is told."
            first, second = random.sample(_DEEDS, 2)
            paragraphs.append(f"That day {hero} {first}. Later on {hero} {second}. {last}")
        return "\n\n".join(paragraphs)

    def _scores(self, request: _Request, random: Random) -> list[float]:
        """The player's score of each text, 0–1."""
        if random.random() < self.noise:
            return [random.random() for _ in request.candidates]
        return [_quality(text, request.sentences) for text in request.candidates]

    def _verdict(self, request: _Request, random: Random) -> TokenLogprob:
        """Yes or no as a token, with the log-probabilities of both."""
        yes = 0.05 + 0.9 * self._scores(request, random)[0]
        top = {"yes": math.log(yes), "no": math.log(1 - yes)}
        word = max(top, key=lambda label: top[label])
        return TokenLogprob(word, top[word], top)


def _listed(name: str, texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    return "\n\n".join(f"{name} {k}:\n{text}" for k, text in enumerate(texts, 1))


def _hero(text: str) -> str | None:
    """The first hero named in a text, or `None`."""
    found = [(text.lower().find(hero), hero) for hero in _HEROES if hero in text.lower()]
    return min(found)[1] if found else None


@lru_cache(maxsize=4096)
def _quality(text: str, sentences: tuple[str, ...]) -> float:
    """The quality of a plan or passage, 0–1: the share of its lines with the most frequent hero.

    For a passage with known sentences, it is the mean of this share and the grade.
    """
    heroes = [hero for line in text.split("\n") if (hero := _hero(line))]
    coherent = Counter(heroes).most_common(1)[0][1] / len(heroes) if heroes else 0.0
    if not sentences or re.match(r"1\. ", text):
        return coherent
    task = creative_writing(sentences)
    return (coherent + (task.grade(text) or 0.0)) / 2


@lru_cache(maxsize=4096)
def _parse_prompt(prompt: str) -> _Request:
    """Parse `prompt`.

    The last paragraph before the candidates takes precedence over the whole prompt, which may quote another.
    """
    for text in (without_candidates(prompt).rpartition("\n\n")[2], prompt):
        for kind, words in _KINDS:
            match = words.search(text)
            if match is not None:
                return _parse_kind(kind, int(match[1]) if match.groups() else 1, prompt)
    return _Request("")


def _parse_kind(kind: str, count: int, prompt: str) -> _Request:
    sentences = found.groups() if (found := _SENTENCES.search(prompt)) else ()
    asked = without_candidates(prompt)
    listed = prompt[len(asked) :]
    candidates = (
        re.split(r"^Candidate \d+$", listed, flags=re.M)[1:] if kind in ("vote", "joint") else [listed]
    )
    texts = tuple(_text(candidate) for candidate in candidates)
    if not sentences and kind != "value":
        return _Request("")
    shown = asked.rpartition("\n\n")[0]
    plan = _PLAN.split(shown)[-1] if _PLAN.search(shown) else ""
    return _Request(kind, count, sentences, plan, texts)


def _text(shown: str) -> str:
    """The passage in a candidate, or else the plan, or else the whole candidate."""
    for heading in (_PASSAGE, _PLAN):
        if heading.search(shown):
            return heading.split(shown)[-1].strip()
    return shown.strip()
