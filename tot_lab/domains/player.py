"""Base of the simulated players of the domains.

A player reads the text of a prompt. The closing words of the prompt determine the form of the reply, such as
a vote or a proposal; the rest states the problem and the path so far. A domain adds a `Responder` with a
method for each form. The prompts of strategies have no specific closing words, so for them the form is the
purpose of the call (`Responder.purposes`). Players use no other information about the position of a call in a
run.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from tot_lab.core.calls import Call, TokenLogprob
from tot_lab.models.simulated import Probability, Simulated, without_candidates

P = TypeVar("P", bound="Player")

Forms = tuple[tuple[str, re.Pattern[str]], ...]
"""Pairs of the name of a form and a pattern of the words that request it. Earlier pairs take precedence."""

STRATEGY_FORMS = frozenset(
    {"act", "critique", "review", "plan", "patch", "augment", "analysis", "reflect", "route", "synthesize"}
)
"""Purposes of calls by strategies whose prompts have no specific closing words."""

OPEN_STEP = re.compile(r"^(s\d+)\b[^\n]*\[(?:failed|skipped|pending)\]", re.M)
"""Pattern of an incomplete step of a plan in a prompt."""

_CANDIDATE = re.compile(r"^Candidate \d+:?$", re.M)
_CANDIDATES = re.compile(r"^Candidates for the next (?:step|word):$", re.M)
_NUMBER = re.compile(r"^\d+\. ", re.M)


class Move(NamedTuple):
    """A move that a player can make."""

    line: str
    """The move as text."""

    pick: Mapping[str, str]
    """The move as a JSON object."""

    after: Any = None
    """The state after the move."""


class Responder(ABC, Generic[P]):
    """Composes the reply to one prompt. Each form in `forms` and `purposes` has a method of the same name.

    Args:
        player: The player, whose settings apply.
        call: The call.
        random: The source of randomness.
    """

    forms: ClassVar[Forms]
    """The forms of reply that prompts of the domain may request."""

    every_paragraph: ClassVar[bool] = False
    """Whether all paragraphs are searched for a requested form, from the last to the first.

    Conversations require this. Otherwise the last paragraph and then the whole text are searched.
    """

    random_ties: ClassVar[bool] = False
    """Whether a vote chooses at random among equally good candidates. `False` chooses the first."""

    purposes: ClassVar[frozenset[str]] = frozenset()
    """Purposes of the strategies' calls that the player answers. The form of such a call is its purpose."""

    def __init__(self, player: P, call: Call, random: Random) -> None:
        self.player = player
        self.call = call
        self.random = random
        self.text = self.conversation(call)
        """The text of the conversation."""
        self.form = call.purpose
        """The requested form, "" if it is unknown."""
        self.count = 1
        """The requested number of moves."""
        if call.purpose not in self.purposes:
            self.form, self.count, _ = form_in(self.text, self.forms, self.every_paragraph)

    @staticmethod
    def conversation(call: Call) -> str:
        """Return the text that the player reads."""
        return call.prompt

    @abstractmethod
    def understands(self) -> bool:
        """Return whether the prompt contains the data that the requested form requires."""

    def refuse(self) -> str | Sequence[TokenLogprob]:
        """Return the reply to a prompt that the player does not understand."""
        return self.player.unknown

    @abstractmethod
    def believes(self) -> bool:
        """Return whether the player believes that the candidate is right."""

    @abstractmethod
    def scores(self) -> Sequence[float]:
        """Return the player's score of each candidate, 0–1."""

    # Forms that all domains have.

    def none(self) -> str:
        """Return the reply to a prompt that says that no move is left."""
        return "none"

    def judge(self) -> str:
        """Return yes if the player believes that the candidate is right, else no."""
        return "yes" if self.believes() else "no"

    def verdict(self) -> TokenLogprob:
        """Return yes or no as a token, with the log-probabilities of both."""
        yes = self.certainty()
        top = {"yes": math.log(yes), "no": math.log(1 - yes)}
        word = max(top, key=lambda label: top[label])
        return TokenLogprob(word, top[word], top)

    def certainty(self) -> float:
        """Return the probability that the player gives to the reply yes."""
        likely = self.random.uniform(0.6, 0.95)
        return likely if self.believes() else 1 - likely

    def joint(self) -> str:
        """Return the scores of all candidates as a JSON list."""
        return json.dumps([round(score, 2) for score in self.scores()])

    def vote(self) -> str:
        """Return `best: N` with the number of the candidate that has the highest score."""
        scores = self.scores() or [0.0]
        best = [k for k, score in enumerate(scores, 1) if score == max(scores)]
        return f"best: {self.random.choice(best) if self.random_ties else best[0]}"

    # Parts of replies.

    def succeeds(self, *, twice: bool = False) -> bool:
        """Return `True` with probability `skill`. With `twice`, one of two such tries must succeed."""
        return self.random.random() >= (1 - self.player.skill) ** (2 if twice else 1)

    def notices(self) -> bool:
        """Return whether the player notices a mistake, which has the probability (1 + skill) / 2."""
        return self.random.random() < (1 + self.player.skill) / 2

    def judgement_of(self, truth: bool) -> bool:
        """Return `truth`, or its opposite with probability `noise`."""
        return truth != (self.random.random() < self.player.noise)

    def score_of(self, believed: bool) -> float:
        """Return a score of a candidate that the player believes to be right, or wrong."""
        return round(self.random.uniform(0.7, 0.95) if believed else self.random.uniform(0.0, 0.3), 2)

    def format(self, name: str, moves: Sequence[Move]) -> str:
        """Return moves as JSON if the call has a schema, and as text otherwise.

        JSON is a list of objects under `name` if the schema has the property `name`, and one object
        otherwise.
        """
        if self.call.response_format is None or not moves:
            return "\n".join(move.line for move in moves) or "none"
        picks = [move.pick for move in moves]
        many = name in self.call.response_format.get("properties", {})
        return json.dumps({name: picks} if many else picks[0])


class Player(Simulated):
    """Base of the simulated players of domains."""

    kind = ""
    responder: ClassVar[type[Responder[Any]]]
    """The class that composes the replies."""

    garbled: ClassVar[tuple[str, ...]]
    """Replies that the domain cannot read."""

    unknown: ClassVar[str]
    """The reply to a prompt that the player does not understand."""

    skill: Probability = 0.8
    """Probability that a move is right, 0–1."""

    noise: Probability = 0.1
    """Probability that a judgement is the opposite of the truth, 0–1."""

    garble: Probability = 0.0
    """Probability that a reply is unreadable, 0–1."""

    def written(self, call: Call, random: Random) -> str | Sequence[TokenLogprob]:
        responder = self.responder(self, call, random)
        if responder.form == "" or not responder.understands():
            return responder.refuse()
        if responder.form == "judge" and call.logprobs:
            return [responder.verdict()]
        if random.random() < self.garble:
            return random.choice(self.garbled)
        return str(getattr(responder, responder.form)())


@lru_cache(maxsize=4096)
def form_in(text: str, forms: Forms, every_paragraph: bool = False) -> tuple[str, int, str]:
    """Find the form that `text` requests.

    The last paragraph before the candidates is searched first, because earlier paragraphs may quote another
    prompt. Then the whole text is searched or, with `every_paragraph`, the other paragraphs from the last to
    the first.

    Returns:
        The form ("" if it is unknown), the requested number of moves, and the text that contains the form.
    """
    paragraphs = without_candidates(text).split("\n\n")
    for part in reversed(paragraphs) if every_paragraph else (paragraphs[-1], text):
        for form, words in forms:
            match = words.search(part)
            if match is not None:
                return form, int(match[1]) if match.groups() else 1, part
    return "", 1, text


def candidates_in(text: str) -> list[str]:
    """Return the candidates that a prompt lists, by number or under headings."""
    listed = _CANDIDATES.split(text)
    if len(listed) == 1:
        return _CANDIDATE.split(text)[1:]
    return [line.strip() for line in _NUMBER.split(listed[-1].strip().partition("\n\n")[0])[1:]]
