"""A simulated writer of passages that end their paragraphs in given sentences.

It reads the prompt's text and the sampling settings, never what the call is for or where it
stands in a tree. What it writes is no literature: a passage is good when all paragraphs have the
same hero and end in their sentences, which its judgements count. So voting has something to find,
and a plan that keeps to one hero leads to a passage that does.
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

_KINDS = (  # what tells the prompts apart, by their closing words
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


class _Seen(NamedTuple):
    """What a prompt asks: its kind, how many texts, the sentences, and the texts that it is about."""

    kind: str
    many: int = 1
    sentences: tuple[str, ...] = ()
    plan: str = ""
    candidates: tuple[str, ...] = ()


class SimCreativeWriting(Simulated):
    """A simulated writer of passages.

    It answers a request for log-probabilities of a yes or no with its only token.
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
        seen = _seen(call.prompt)
        if seen.kind == "":
            return _UNKNOWN
        if seen.kind == "judge" and call.logprobs:
            return [self._verdict(seen, random)]
        if random.random() < self.garble:
            return random.choice(_GARBLED)
        text = "none"
        if seen.kind in ("plan", "plans"):
            text = _listed("Plan", [self._plan(random) for _ in range(seen.many)])
        elif seen.kind in ("passage", "passages"):
            text = _listed("Passage", [self._passage(seen, seen.plan, random) for _ in range(seen.many)])
        elif seen.kind == "both":
            plan = self._plan(random)
            text = f"Plan:\n{plan}\n\nPassage:\n{self._passage(seen, plan, random)}"
        elif seen.kind == "value":
            text = f"I counted heroes and endings.\nscore: {1 + round(9 * self._scores(seen, random)[0])}/10"
        elif seen.kind == "judge":
            text = "yes" if self._scores(seen, random)[0] > 0.99 else "no"
        elif seen.kind == "joint":
            text = json.dumps([round(score, 2) for score in self._scores(seen, random)])
        elif seen.kind == "vote":
            scores = self._scores(seen, random)
            text = f"best: {random.choice([k for k, s in enumerate(scores, 1) if s == max(scores)])}"
        return text

    def _heroes(self, random: Random) -> list[str]:
        """The heroes of four paragraphs."""
        heroes = [random.choice(_HEROES)]
        while len(heroes) < 4:
            heroes.append(heroes[-1] if random.random() < self.skill else random.choice(_HEROES))
        return heroes

    def _plan(self, random: Random) -> str:
        lines = [f"{hero} {random.choice(_DEEDS)}." for hero in self._heroes(random)]
        return "\n".join(f"{k}. {line.capitalize()}" for k, line in enumerate(lines, 1))

    def _passage(self, seen: _Seen, plan: str, random: Random) -> str:
        heroes = [hero for line in plan.split("\n") if (hero := _hero(line))]
        heroes = heroes if len(heroes) == 4 else self._heroes(random)
        paragraphs = []
        for hero, sentence in zip(heroes, seen.sentences, strict=True):
            last = sentence if random.random() < self.skill else f"{sentence[:-1]}, or so it is told."
            first, second = random.sample(_DEEDS, 2)
            paragraphs.append(f"That day {hero} {first}. Later on {hero} {second}. {last}")
        return "\n\n".join(paragraphs)

    def _scores(self, seen: _Seen, random: Random) -> list[float]:
        """How good it finds each text, 0–1."""
        if random.random() < self.noise:
            return [random.random() for _ in seen.candidates]
        return [_quality(text, seen.sentences) for text in seen.candidates]

    def _verdict(self, seen: _Seen, random: Random) -> TokenLogprob:
        """Yes or no, with the probabilities of both."""
        yes = 0.05 + 0.9 * self._scores(seen, random)[0]
        top = {"yes": math.log(yes), "no": math.log(1 - yes)}
        word = max(top, key=lambda label: top[label])
        return TokenLogprob(word, top[word], top)


def _listed(name: str, texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    return "\n\n".join(f"{name} {k}:\n{text}" for k, text in enumerate(texts, 1))


def _hero(text: str) -> str | None:
    """The hero that a text names first."""
    found = [(text.lower().find(hero), hero) for hero in _HEROES if hero in text.lower()]
    return min(found)[1] if found else None


@lru_cache(maxsize=4096)
def _quality(text: str, sentences: tuple[str, ...]) -> float:
    """How coherent a plan or a passage is: the share of its lines with the commonest hero; of a passage
    whose sentences are known, the mean of that and of the share of its endings."""
    heroes = [hero for line in text.split("\n") if (hero := _hero(line))]
    coherent = Counter(heroes).most_common(1)[0][1] / len(heroes) if heroes else 0.0
    if not sentences or re.match(r"1\. ", text):
        return coherent
    task = creative_writing(sentences)
    return (coherent + (task.grade(text) or 0.0)) / 2


@lru_cache(maxsize=4096)
def _seen(prompt: str) -> _Seen:
    """What `prompt` asks; its kind is "" when that is not understood. The last paragraph before the
    candidates decides, or else the whole text: a prompt may quote the words of another."""
    for text in (without_candidates(prompt).rpartition("\n\n")[2], prompt):
        for kind, words in _KINDS:
            match = words.search(text)
            if match is not None:
                return _read(kind, int(match[1]) if match.groups() else 1, prompt)
    return _Seen("")


def _read(kind: str, count: int, prompt: str) -> _Seen:
    sentences = found.groups() if (found := _SENTENCES.search(prompt)) else ()
    asked = without_candidates(prompt)
    listed = prompt[len(asked) :]
    candidates = (
        re.split(r"^Candidate \d+$", listed, flags=re.M)[1:] if kind in ("vote", "joint") else [listed]
    )
    texts = tuple(_text(candidate) for candidate in candidates)
    if not sentences and kind != "value":
        return _Seen("")
    shown = asked.rpartition("\n\n")[0]
    plan = _PLAN.split(shown)[-1] if _PLAN.search(shown) else ""
    return _Seen(kind, count, sentences, plan, texts)


def _text(shown: str) -> str:
    """The passage in what a prompt shows, or else the plan, or else all of it."""
    for heading in (_PASSAGE, _PLAN):
        if heading.search(shown):
            return heading.split(shown)[-1].strip()
    return shown.strip()
