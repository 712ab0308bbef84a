"""A simulated solver of the built-in mini crosswords.

It reads only the text of a prompt and the sampling settings, never the purpose of a call or its node. It
knows all built-in clues and words. `skill`, `sight` and `noise` determine the frequency of its mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache

from tot_lab.domains.mini_crossword import (
    CLUE,
    CONFIDENCE,
    EMPTY,
    NAMES,
    fill_cells,
    fits,
    grid_in,
    letters_of,
    rows_of,
)
from tot_lab.domains.mini_crossword.puzzles import puzzles
from tot_lab.domains.player import Move, Player, Responder, candidates_in
from tot_lab.models.simulated import JUDGING, Probability

_FORMS = (
    ("none", re.compile(r"the grid is full", re.I)),
    *JUDGING,
    ("part", re.compile(r"whether this clue\b", re.I)),
    ("value", re.compile(r"\A(?>.*?\bsure\b).*\bimpossible\b", re.I | re.S)),
    ("propose", re.compile(r"find words for the clues", re.I)),
    ("sample", re.compile(r"find the word for one clue", re.I)),
    ("answer", re.compile(r"^Answer:", re.M)),
)
_LETTERS_HEAD = re.compile(r"^Letters (?:so far|after it):", re.M)
_LETTERS = re.compile(r"^([hv][1-5]): ([a-z_](?: [a-z_]){4})$", re.M)
_SURE_WHEN_RIGHT = (0.35, 0.35, 0.2, 0.1)  # probabilities of certain, high, medium, low
_SURE_WHEN_WRONG = (0.15, 0.25, 0.3, 0.3)

_Letters = Mapping[str, str]  # five letters per clue, with _ for each unknown letter


class _Responder(Responder["SimMiniCrossword"]):
    """Composes replies from the clues and the letters that the prompt states."""

    forms = _FORMS

    @cached_property
    def clues(self) -> Mapping[str, str]:
        """The clues by name. If a name occurs twice, the first clue is used."""
        return dict(reversed(CLUE.findall(self.text)))

    @cached_property
    def letters(self) -> _Letters:
        """The known letters of each clue that the prompt asks about."""
        return _letters_by_clue(_LETTERS_HEAD.split(self.text)[-1])

    @cached_property
    def candidates(self) -> list[_Letters]:
        """The letters of each clue, for each candidate."""
        shown = candidates_in(self.text)
        if self.form == "vote":
            return [_letters_by_clue(text) for text in shown]
        grids = map(grid_in, shown)
        return [{} if grid is None else _letters(grid) for grid in grids]

    def understands(self) -> bool:
        stated = self.form in ("none", "answer", "vote", "joint") or bool(self.letters)
        return stated and self.clues.keys() >= (self.letters.keys() if self.form == "part" else set(NAMES))

    # Words.

    def sample(self) -> str:
        """Return the word with the highest confidence."""
        return self.format("words", self.words(self.letters)[:1])

    def propose(self) -> str:
        """Return a word for each open clue."""
        return self.format("words", self.words(self.letters))

    def words(self, letters: _Letters) -> list[Move]:
        """Return a word for each open clue, in descending order of confidence."""
        words = []
        for name, there in letters.items():
            if "_" not in there:
                continue
            word, right = self.recall(self.clues[name], there)
            chances = _SURE_WHEN_RIGHT if right else _SURE_WHEN_WRONG
            sure = self.random.choices(list(CONFIDENCE), chances)[0]
            pick = {"clue": name, "word": word, "confidence": sure}
            words.append(Move(f"{name}. {word} ({sure})", pick))
        self.random.shuffle(words)
        return sorted(words, key=lambda word: -CONFIDENCE[word.pick["confidence"]])

    def recall(self, clue: str, there: str) -> tuple[str, bool]:
        """Return a word for a clue, and whether it is the right one."""
        answer, random = _answers().get(clue, ""), self.random
        chance = self.player.skill + (1 - self.player.skill) * (5 - there.count("_")) / 5
        if answer and fits(there, answer) and random.random() < chance:
            return answer, True
        others = [word for word in _fitting(there) if word != answer]
        if others:
            return random.choice(others), False
        made_up = random.choice(_vocabulary())
        return "".join(b if a == "_" else a for a, b in zip(there, made_up, strict=True)), False

    def answer(self) -> str:
        """Return a whole game in one reply.

        Without reasoning, the rows are filled from the top. With reasoning, words are written in descending
        order of confidence.
        """
        grid, lines = EMPTY, list[str]()
        while "_" in grid:
            letters = _letters(grid)
            if "step by step" in self.text:
                name, word, _ = self.words(letters)[0].pick.values()
                lines.append(f"{name}. {word}")
            else:
                name = next(name for name in NAMES if "_" in letters[name])
                word, _ = self.recall(self.clues[name], letters[name])
            grid = fill_cells(grid, name, word)
        return "\n".join([*lines, f"Answer: {rows_of(grid)}"])

    # Judgements.

    def value(self) -> str:
        """Return a label for each clue that the prompt asks about."""
        return "\n".join(
            f"{name}: {self.label(self.clues[name], there)}" for name, there in self.letters.items()
        )

    def part(self) -> str:
        """Return a label for one clue."""
        return self.value()

    def label(self, clue: str, there: str) -> str:
        """Return a label for one clue."""
        answer = _answers().get(clue)
        if answer is None:
            return "maybe"
        possible = fits(there, answer)
        if self.random.random() < (self.player.noise if possible else self.player.sight):
            return "impossible"
        return "sure" if possible and "_" not in there else "maybe"

    def fills(self, letters: _Letters) -> bool:
        """Return whether the player believes that each clue with at least two letters can be answered."""
        known = [(name, there) for name, there in letters.items() if there.count("_") < 4]
        return "impossible" not in [self.label(self.clues[name], there) for name, there in known]

    def believes(self) -> bool:
        return self.fills(self.letters)

    def scores(self) -> list[float]:
        return [self.score_of(bool(letters) and self.fills(letters)) for letters in self.candidates]


class SimMiniCrossword(Player):
    """A simulated solver of the built-in mini crosswords. For other clues it guesses.

    The mistakes of its replies are independent, while a real model repeats its mistakes. Therefore pooling
    replies helps more than with a real model. If a call requests log-probabilities of yes or no, the
    reply is one token, yes or no.
    """

    kind = "sim/mini_crossword"
    responder = _Responder
    garbled = ("", "...", "I have lost the thread here.", '{"words": [{"clue": ', "?? ?? ??")
    unknown = "I am a simulated solver of mini crosswords, and I do not understand this prompt."

    skill: Probability = 0.4
    """Probability of finding the right word for a clue without known letters, 0–1.

    Each known letter adds (1 - skill) / 5. A word that does not fit the letters is never
    written.
    """

    sight: Probability = 0.12
    """Probability of the label `impossible` for a clue whose letters contradict the right word, 0–1."""

    noise: Probability = 0.03
    """Probability of the label `impossible` for a clue whose letters agree with the right word, 0–1."""


def _letters_by_clue(text: str) -> _Letters:
    """Return the letters of each clue in `text`, joined."""
    return {name: letters.replace(" ", "") for name, letters in _LETTERS.findall(text)}


def _letters(grid: str) -> _Letters:
    return {name: letters_of(grid, name) for name in NAMES}


@lru_cache(maxsize=1)
def _answers() -> Mapping[str, str]:
    """Return the right word of each clue."""
    return {clue: word for puzzle in puzzles() for clue, word in zip(puzzle.clues, puzzle.words, strict=True)}


@lru_cache(maxsize=4096)
def _fitting(there: str) -> list[str]:
    return [word for word in _vocabulary() if fits(there, word)]


@lru_cache(maxsize=1)
def _vocabulary() -> Sequence[str]:
    return sorted(set(_answers().values()))
