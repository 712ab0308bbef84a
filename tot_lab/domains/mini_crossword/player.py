"""A simulated solver of the package's own mini crosswords.

It knows no more than a model would. It reads the prompt's text and the sampling settings,
never what the call is for or where it stands in a tree; it has all the package's clues and words
in its memory, and `skill`, `sight` and `noise` say how much of that shows.
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

_KINDS = (  # what tells the prompts apart, by their closing words
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

_Letters = Mapping[str, str]  # five letters a clue, _ for each that is missing


class _Word(NamedTuple):
    name: str
    word: str
    confidence: str


class _Seen(NamedTuple):
    """What a prompt asks: its kind, and the letters of each clue it is about (for `vote` and `joint`,
    those of each candidate)."""

    kind: str
    letters: _Letters = {}
    candidates: tuple[_Letters, ...] = ()


class SimMiniCrossword(Simulated):
    """A simulated solver of the package's own mini crosswords. For other clues it guesses.

    Each reply errs independently, while a real model repeats its mistakes: several replies together know far
    more than one. It answers a request for log-probabilities of a yes or no with its only token.
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
    """Share of replies that cannot be read, 0–1."""

    def written(self, call: Call, random: Random) -> str | Sequence[TokenLogprob]:
        prompt = call.prompt
        clues = dict(reversed(_CLUE.findall(prompt)))  # the first of each counts
        seen = _seen(prompt)
        if not clues.keys() >= (seen.letters.keys() if seen.kind == "part" else set(NAMES)):
            seen = _Seen("")
        if seen.kind == "judge" and call.logprobs:
            return [self._verdict(clues, seen.letters, random)]
        if seen.kind == "":
            return _UNKNOWN
        if random.random() < self.garble:
            return random.choice(_GARBLED)
        text = "none"
        if seen.kind in ("sample", "propose"):
            words = self._words(clues, seen.letters, random)
            text = _shown(words[:1] if seen.kind == "sample" else words, seen.kind, call)
        elif seen.kind in ("value", "part"):
            judged = [
                f"{name}: {self._judged(clues[name], there, random)}" for name, there in seen.letters.items()
            ]
            text = "\n".join(judged)
        elif seen.kind == "judge":
            text = "yes" if self._believes(clues, seen.letters, random) else "no"
        elif seen.kind == "joint":
            text = json.dumps([self._score(clues, letters, random) for letters in seen.candidates])
        elif seen.kind == "vote":
            scores = [self._score(clues, letters, random) for letters in seen.candidates]
            text = f"best: {scores.index(max(scores)) + 1}"
        elif seen.kind == "answer":
            text = self._solved(clues, "step by step" in prompt, random)
        return text

    def _words(self, clues: Mapping[str, str], letters: _Letters, random: Random) -> list[_Word]:
        """A word for each open clue, the surest first."""
        words = []
        for name, there in letters.items():
            if "_" not in there:
                continue
            word, right = self._thought_of(clues[name], there, random)
            chances = _SURE_WHEN_RIGHT if right else _SURE_WHEN_WRONG
            words.append(_Word(name, word, random.choices(list(CONFIDENCE), chances)[0]))
        random.shuffle(words)
        return sorted(words, key=lambda word: -CONFIDENCE[word.confidence])

    def _thought_of(self, clue: str, there: str, random: Random) -> tuple[str, bool]:
        """The word that it thinks of, and whether it is the right one."""
        answer = _answers().get(clue, "")
        chance = self.skill + (1 - self.skill) * (5 - there.count("_")) / 5
        if answer and fits(there, answer) and random.random() < chance:
            return answer, True
        others = [word for word in _vocabulary() if word != answer and fits(there, word)]
        if others:
            return random.choice(others), False
        made_up = random.choice(_vocabulary())
        return "".join(b if a == "_" else a for a, b in zip(there, made_up, strict=True)), False

    def _judged(self, clue: str, there: str, random: Random) -> str:
        """What it says of one clue."""
        answer = _answers().get(clue)
        if answer is None:
            return "maybe"
        possible = fits(there, answer)
        if random.random() < (self.noise if possible else self.sight):
            return "impossible"
        return "sure" if possible and "_" not in there else "maybe"

    def _believes(self, clues: Mapping[str, str], letters: _Letters, random: Random) -> bool:
        judged = [
            self._judged(clues[name], there, random)
            for name, there in letters.items()
            if there.count("_") < 4
        ]
        return "impossible" not in judged

    def _verdict(self, clues: Mapping[str, str], letters: _Letters, random: Random) -> TokenLogprob:
        """Yes or no, with the probabilities of both."""
        likely = random.uniform(0.6, 0.95)
        yes = likely if self._believes(clues, letters, random) else 1 - likely
        top = {"yes": math.log(yes), "no": math.log(1 - yes)}
        word = max(top, key=lambda label: top[label])
        return TokenLogprob(word, top[word], top)

    def _score(self, clues: Mapping[str, str], letters: _Letters, random: Random) -> float:
        believes = bool(letters) and self._believes(clues, letters, random)
        return round(random.uniform(0.7, 0.95) if believes else random.uniform(0.0, 0.3), 2)

    def _solved(self, clues: Mapping[str, str], aloud: bool, random: Random) -> str:
        """A whole game in one reply: the five rows, each by itself; or aloud, one word after another,
        each with the letters that are there by then."""
        grid, lines = EMPTY, list[str]()
        while "_" in grid:
            letters = _letters(grid)
            if aloud:
                name, word, _ = self._words(clues, letters, random)[0]
                lines.append(f"{name}. {word}")
            else:
                name = next(name for name in NAMES if "_" in letters[name])
                word, _ = self._thought_of(clues[name], letters[name], random)
            grid = filled(grid, name, word)
        return "\n".join([*lines, f"Answer: {rows_of(grid)}"])


def _shown(words: Sequence[_Word], kind: str, call: Call) -> str:
    """`words` in plain text, or in JSON when the call has a schema."""
    if call.response_format is None or not words:
        return "\n".join(f"{name}. {word} ({sure})" for name, word, sure in words) or "none"
    picks = [{"clue": name, "word": word, "confidence": sure} for name, word, sure in words]
    return json.dumps(picks[0] if kind == "sample" else {"words": picks})


@lru_cache(maxsize=4096)
def _seen(prompt: str) -> _Seen:
    """What `prompt` asks; its kind is "" when that is not understood. The last paragraph before the
    candidates decides, or else the whole text: a prompt may quote the words of another."""
    for text in (without_candidates(prompt).rpartition("\n\n")[2], prompt):
        for kind, words in _KINDS:
            if words.search(text):
                return _read(kind, prompt)
    return _Seen("")


def _read(kind: str, prompt: str) -> _Seen:
    if kind == "vote":
        parts = re.split(r"^Candidate \d+:", prompt, flags=re.M)[1:]
        return _Seen(kind, candidates=tuple(_stated(part) for part in parts))
    if kind == "joint":
        rows = re.findall(r"^\d+\. (.*)$", prompt.rpartition("Candidates for the next word")[2], re.M)
        grids = [grid_in(row) for row in rows]
        return _Seen(kind, candidates=tuple({} if grid is None else _letters(grid) for grid in grids))
    if kind in ("none", "answer"):
        return _Seen(kind)
    letters = _stated(_LETTERS_HEAD.split(prompt)[-1])
    return _Seen(kind, letters) if letters else _Seen("")


def _stated(text: str) -> _Letters:
    """The letters of clues that `text` shows, apart."""
    return {name: letters.replace(" ", "") for name, letters in _LETTERS.findall(text)}


def _letters(grid: str) -> _Letters:
    return {name: letters_of(grid, name) for name in NAMES}


@lru_cache(maxsize=1)
def _answers() -> Mapping[str, str]:
    """The right word by clue."""
    return {clue: word for puzzle in puzzles() for clue, word in zip(puzzle.clues, puzzle.words, strict=True)}


@lru_cache(maxsize=1)
def _vocabulary() -> Sequence[str]:
    return sorted(set(_answers().values()))
