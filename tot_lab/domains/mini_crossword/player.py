"""A simulated solver of the built-in mini crosswords.

It reads only the text of a prompt and the sampling settings, never the purpose of a call or its node. It
knows all built-in clues and words; `skill`, `sight` and `noise` set how often it errs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple

from tot_lab.core.calls import Call, TokenLogprob
from tot_lab.domains.mini_crossword import (
    CONFIDENCE,
    EMPTY,
    NAMES,
    filled,
    fits,
    grid_in,
    letters_of,
    rows_of,
)
from tot_lab.domains.mini_crossword.puzzles import puzzles
from tot_lab.models.simulated import JUDGING, Share, Simulated, without_candidates

_KINDS = (  # kinds of prompts, by their closing words
    ("none", re.compile(r"the grid is full", re.I)),
    *JUDGING,
    ("part", re.compile(r"whether this clue\b", re.I)),
    ("value", re.compile(r"\A(?>.*?\bsure\b).*\bimpossible\b", re.I | re.S)),
    ("propose", re.compile(r"find words for the clues", re.I)),
    ("sample", re.compile(r"find the word for one clue", re.I)),
    ("answer", re.compile(r"^Answer:", re.M)),
)
_CLUE = re.compile(r"^([hv][1-5])\. (.+)$", re.M)
_LETTERS_HEAD = re.compile(r"^Letters (?:so far|after it):", re.M)
_LETTERS = re.compile(r"^([hv][1-5]): ([a-z_](?: [a-z_]){4})$", re.M)
_GARBLED = ("", "...", "I have lost the thread here.", '{"words": [{"clue": ', "?? ?? ??")
_UNKNOWN = "I am a simulated solver of mini crosswords, and I do not understand this prompt."
_SURE_WHEN_RIGHT = (0.35, 0.35, 0.2, 0.1)  # certain, high, medium, low
_SURE_WHEN_WRONG = (0.15, 0.25, 0.3, 0.3)

_Letters = Mapping[str, str]  # five letters per clue, with _ for each unknown letter


class _Word(NamedTuple):
    name: str
    word: str
    confidence: str


class _Request(NamedTuple):
    """A parsed prompt."""

    kind: str
    """One of `_KINDS`, or "" if the prompt is not understood."""

    letters: _Letters = {}
    """The letters of each clue in question."""

    candidates: tuple[_Letters, ...] = ()
    """The letters of each candidate, for `vote` and `joint`."""


class SimMiniCrossword(Simulated):
    """A simulated solver of the built-in mini crosswords. For other clues it guesses.

    Replies err independently, while a real model repeats its mistakes, so that pooling replies helps more
    than it would with a real model. If a call requests log-probabilities of yes or no, the reply is that one
    token.
    """

    kind = "sim/mini_crossword"

    skill: Share = 0.4
    """Probability that it finds the right word for a clue without letters, 0–1. Each known letter makes up a
    fifth of the rest. It never writes a word that does not fit the letters."""

    sight: Share = 0.12
    """Probability that it finds a clue impossible if its letters rule the right word out, 0–1."""

    noise: Share = 0.03
    """Probability that it finds a clue impossible if they do not, 0–1."""

    garble: Share = 0.0
    """Share of unreadable replies, 0–1."""

    def written(self, call: Call, random: Random) -> str | Sequence[TokenLogprob]:
        prompt = call.prompt
        clues = dict(reversed(_CLUE.findall(prompt)))  # The first clue of each name takes precedence.
        request = _parse_prompt(prompt)
        if not clues.keys() >= (request.letters.keys() if request.kind == "part" else set(NAMES)):
            request = _Request("")
        if request.kind == "judge" and call.logprobs:
            return [self._verdict(clues, request.letters, random)]
        if request.kind == "":
            return _UNKNOWN
        if random.random() < self.garble:
            return random.choice(_GARBLED)
        text = "none"
        if request.kind in ("sample", "propose"):
            words = self._words(clues, request.letters, random)
            text = _format_words(words[:1] if request.kind == "sample" else words, request.kind, call)
        elif request.kind in ("value", "part"):
            judged = [
                f"{name}: {self._judge(clues[name], there, random)}"
                for name, there in request.letters.items()
            ]
            text = "\n".join(judged)
        elif request.kind == "judge":
            text = "yes" if self._believes(clues, request.letters, random) else "no"
        elif request.kind == "joint":
            text = json.dumps([self._score(clues, letters, random) for letters in request.candidates])
        elif request.kind == "vote":
            scores = [self._score(clues, letters, random) for letters in request.candidates]
            text = f"best: {scores.index(max(scores)) + 1}"
        elif request.kind == "answer":
            text = self._solve(clues, "step by step" in prompt, random)
        return text

    def _words(self, clues: Mapping[str, str], letters: _Letters, random: Random) -> list[_Word]:
        """A word for each open clue, in descending order of confidence."""
        words = []
        for name, there in letters.items():
            if "_" not in there:
                continue
            word, right = self._recall(clues[name], there, random)
            chances = _SURE_WHEN_RIGHT if right else _SURE_WHEN_WRONG
            words.append(_Word(name, word, random.choices(list(CONFIDENCE), chances)[0]))
        random.shuffle(words)
        return sorted(words, key=lambda word: -CONFIDENCE[word.confidence])

    def _recall(self, clue: str, there: str, random: Random) -> tuple[str, bool]:
        """A word for a clue, and whether it is the right one."""
        answer = _answers().get(clue, "")
        chance = self.skill + (1 - self.skill) * (5 - there.count("_")) / 5
        if answer and fits(there, answer) and random.random() < chance:
            return answer, True
        others = [word for word in _vocabulary() if word != answer and fits(there, word)]
        if others:
            return random.choice(others), False
        made_up = random.choice(_vocabulary())
        return "".join(b if a == "_" else a for a, b in zip(there, made_up, strict=True)), False

    def _judge(self, clue: str, there: str, random: Random) -> str:
        """A label for one clue."""
        answer = _answers().get(clue)
        if answer is None:
            return "maybe"
        possible = fits(there, answer)
        if random.random() < (self.noise if possible else self.sight):
            return "impossible"
        return "sure" if possible and "_" not in there else "maybe"

    def _believes(self, clues: Mapping[str, str], letters: _Letters, random: Random) -> bool:
        judged = [
            self._judge(clues[name], there, random) for name, there in letters.items() if there.count("_") < 4
        ]
        return "impossible" not in judged

    def _verdict(self, clues: Mapping[str, str], letters: _Letters, random: Random) -> TokenLogprob:
        """Yes or no as a token, with the log-probabilities of both."""
        likely = random.uniform(0.6, 0.95)
        yes = likely if self._believes(clues, letters, random) else 1 - likely
        top = {"yes": math.log(yes), "no": math.log(1 - yes)}
        word = max(top, key=lambda label: top[label])
        return TokenLogprob(word, top[word], top)

    def _score(self, clues: Mapping[str, str], letters: _Letters, random: Random) -> float:
        believes = bool(letters) and self._believes(clues, letters, random)
        return round(random.uniform(0.7, 0.95) if believes else random.uniform(0.0, 0.3), 2)

    def _solve(self, clues: Mapping[str, str], reasoning: bool, random: Random) -> str:
        """A whole game in one reply.

        Without reasoning, the rows are found from the top. With it, the most confident word is written first.
        """
        grid, lines = EMPTY, list[str]()
        while "_" in grid:
            letters = _letters(grid)
            if reasoning:
                name, word, _ = self._words(clues, letters, random)[0]
                lines.append(f"{name}. {word}")
            else:
                name = next(name for name in NAMES if "_" in letters[name])
                word, _ = self._recall(clues[name], letters[name], random)
            grid = filled(grid, name, word)
        return "\n".join([*lines, f"Answer: {rows_of(grid)}"])


def _format_words(words: Sequence[_Word], kind: str, call: Call) -> str:
    """`words` as plain text, or as JSON if the call has a schema."""
    if call.response_format is None or not words:
        return "\n".join(f"{name}. {word} ({sure})" for name, word, sure in words) or "none"
    picks = [{"clue": name, "word": word, "confidence": sure} for name, word, sure in words]
    return json.dumps(picks[0] if kind == "sample" else {"words": picks})


@lru_cache(maxsize=4096)
def _parse_prompt(prompt: str) -> _Request:
    """Parse `prompt`.

    The last paragraph before the candidates takes precedence over the whole prompt, which may quote another.
    """
    for text in (without_candidates(prompt).rpartition("\n\n")[2], prompt):
        for kind, words in _KINDS:
            if words.search(text):
                return _parse_kind(kind, prompt)
    return _Request("")


def _parse_kind(kind: str, prompt: str) -> _Request:
    if kind == "vote":
        parts = re.split(r"^Candidate \d+:", prompt, flags=re.M)[1:]
        return _Request(kind, candidates=tuple(_stated(part) for part in parts))
    if kind == "joint":
        rows = re.findall(r"^\d+\. (.*)$", prompt.rpartition("Candidates for the next word")[2], re.M)
        grids = [grid_in(row) for row in rows]
        return _Request(kind, candidates=tuple({} if grid is None else _letters(grid) for grid in grids))
    if kind in ("none", "answer"):
        return _Request(kind)
    letters = _stated(_LETTERS_HEAD.split(prompt)[-1])
    return _Request(kind, letters) if letters else _Request("")


def _stated(text: str) -> _Letters:
    """The letters of each clue in `text`, joined."""
    return {name: letters.replace(" ", "") for name, letters in _LETTERS.findall(text)}


def _letters(grid: str) -> _Letters:
    return {name: letters_of(grid, name) for name in NAMES}


@lru_cache(maxsize=1)
def _answers() -> Mapping[str, str]:
    """The right word of each clue."""
    return {clue: word for puzzle in puzzles() for clue, word in zip(puzzle.clues, puzzle.words, strict=True)}


@lru_cache(maxsize=1)
def _vocabulary() -> Sequence[str]:
    return sorted(set(_answers().values()))
