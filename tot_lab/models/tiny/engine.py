"""Generates the replies of all calls in flight together, one token of each at a time.

A thread runs as long as texts are being generated. A text depends only on its own request and settings, not
on the other texts in flight; see `network`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from random import Random
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tot_lab.core.calls import TokenLogprob
from tot_lab.models.tiny.language import END, PIECES, REQUESTS
from tot_lab.models.tiny.network import Decoder, Network

SLOTS = 64
"""The most texts that are generated at the same time. Further ones wait."""

_UNWRITTEN = [
    k for k, piece in enumerate(PIECES) if k != END and (piece in REQUESTS or piece in ("", ":", ">", "|"))
]


class Wanted(NamedTuple):
    """A request for a text, and the settings with which it is generated."""

    tokens: tuple[int, ...]
    """Ids of the tokens of the prompt, and of the beginning of the reply if that is given."""

    most: int
    """The most tokens of the text."""

    temperature: float
    top_p: float
    stop: tuple[str, ...]
    seed: bytes
    alternatives: int
    """Number of alternatives to report for each token. 0 reports no log-probabilities at all."""

    partial: Callable[[str], None] | None
    """Called with the text so far after each token."""


class Written(NamedTuple):
    """A generated text and its number of tokens. `finish` is `stop` or `length`. `ended` is whether the model
    ended the text itself, and not a stop text or the limit.
    """

    text: str
    tokens: int
    finish: str
    ended: bool
    logprobs: tuple[TokenLogprob, ...]


class _Text:
    """A text that is being generated."""

    def __init__(self, wanted: Wanted, future: Future[Written]) -> None:
        self.wanted, self.future = wanted, future
        self.random = Random(wanted.seed)
        self.ahead = deque(wanted.tokens)
        self.text, self.count = "", 0
        self.logprobs: list[TokenLogprob] = []

    def take(self, token: int, logprobs: NDArray[np.float64]) -> Written | None:
        """Append `token`. `logprobs` are those of all tokens at its place. Returns the text if it is
        finished, else `None`."""
        wanted = self.wanted
        if token == END:
            return self._finished("stop", True)
        before = len(self.text)
        self.text += PIECES[token]
        self.count += 1
        if wanted.alternatives:
            best = np.argsort(-logprobs, kind="stable")[: wanted.alternatives]
            top = {PIECES[k] or "<end>": float(logprobs[k]) for k in best.tolist()}
            self.logprobs.append(TokenLogprob(PIECES[token], float(logprobs[token]), top))
        places = [self.text.find(stop) for stop in wanted.stop if stop in self.text]
        if places:
            self.text = self.text[: min(places)]
            if wanted.alternatives and len(self.text) <= before:
                self.logprobs.pop()
            return self._finished("stop", False)
        if wanted.partial is not None:
            wanted.partial(self.text)
        if self.count == wanted.most:
            return self._finished("length", False)
        self.ahead.append(token)
        return None

    def _finished(self, finish: str, ended: bool) -> Written:
        return Written(self.text, self.count, finish, ended, tuple(self.logprobs))


class Engine:
    """Generates texts with one network, in a background thread."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._decoder: Decoder | None = None
        self._lock = threading.Lock()
        self._waiting: deque[_Text] = deque()
        self._is_working = False

    def write(self, wanted: Wanted) -> Future[Written]:
        """Start to generate a text, and return its future. Cancelling the future stops the generation."""
        text = _Text(wanted, Future())
        with self._lock:
            self._waiting.append(text)
            if not self._is_working:
                self._is_working = True
                threading.Thread(target=self._work, name="tot_lab tiny model", daemon=True).start()
        return text.future

    def _work(self) -> None:
        active: dict[int, _Text] = {}
        try:
            decoder = self._decoder = self._decoder or Decoder(self.network, SLOTS)
            while True:
                active = {slot: text for slot, text in active.items() if not text.future.cancelled()}
                with self._lock:
                    for slot in set(range(SLOTS)) - set(active) if self._waiting else ():
                        if self._waiting:
                            active[slot] = self._waiting.popleft()
                            decoder.reset(slot)
                    if not active:
                        self._is_working = False
                        return
                self._step(decoder, active)
        except BaseException as error:
            with self._lock:
                texts = [*active.values(), *self._waiting]
                self._waiting.clear()
                self._is_working = False
            for text in texts:
                _end(text.future, error)

    @staticmethod
    def _step(decoder: Decoder, active: dict[int, _Text]) -> None:
        """Process one token of each text, choose the next one where the prompt is done, and remove finished
        texts.
        """
        slots = list(active)
        logits = decoder.step(slots, [active[slot].ahead.popleft() for slot in slots])
        at = [k for k, slot in enumerate(slots) if not active[slot].ahead]
        texts = [active[slots[k]] for k in at]
        if not at:
            return
        logprobs = log_softmax(logits[at])
        for slot, text, token, row in zip(
            [slots[k] for k in at], texts, _choose(logprobs, texts), logprobs, strict=True
        ):
            if (written := text.take(token, row)) is not None:
                del active[slot]
                _end(text.future, written)


def _end(future: Future[Written], outcome: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the log-probabilities of each row, with -inf for tokens that only prompts have."""
    values = logits.astype(np.float64)
    values[:, _UNWRITTEN] = -np.inf
    values -= values.max(axis=1, keepdims=True)
    values -= np.log(np.exp(values).sum(axis=1, keepdims=True))
    return values


def _choose(logprobs: NDArray[np.float64], texts: list[_Text]) -> list[int]:
    """Return the next token of each text: the likeliest at temperature 0, else one drawn at random."""
    chosen: NDArray[np.int64] = logprobs.argmax(axis=1)
    drawn = [k for k, text in enumerate(texts) if text.wanted.temperature > 0]
    if drawn:
        heat = np.array([texts[k].wanted.temperature for k in drawn])[:, None]
        values = logprobs[drawn] / heat
        shares = np.exp(values - values.max(axis=1, keepdims=True))
        for row, k in zip(shares, drawn, strict=True):
            if texts[k].wanted.top_p < 1:
                _cut(row, texts[k].wanted.top_p)
        sums = shares.cumsum(axis=1)
        points = np.array([texts[k].random.random() for k in drawn])[:, None] * sums[:, -1:]
        chosen[drawn] = (sums <= points).sum(axis=1)
    return [int(token) for token in chosen]


def _cut(shares: NDArray[np.float64], top_p: float) -> None:
    """Set `shares` to 0 except for the likeliest tokens: as few as have a total probability of at least
    `top_p`.
    """
    order = np.argsort(-shares, kind="stable")
    before = np.cumsum(shares[order]) - shares[order]
    shares[order[before >= top_p * shares.sum()]] = 0.0
