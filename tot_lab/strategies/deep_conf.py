"""DeepConf: votes weighted by the confidence of the tokens, offline and online."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, NamedTuple

import msgspec
from pydantic import Field

from tot_lab.core.calls import confidences_of, halts, stop_of
from tot_lab.core.protocol import Procedure, ask, emit, gather
from tot_lab.core.records import Note, Thought, call_failed, parent_of
from tot_lab.core.strategy import Prompting
from tot_lab.core.task import Answer, Task
from tot_lab.strategies.confidence import ALTERNATIVES, Confidence, confidence_of, quantile
from tot_lab.strategies.voting import choose_by_vote, votes_of


class DeepConf(Prompting):
    """Sample several chains of thought, and let the most confident ones vote, weighted by their confidence.

    The confidence of a token is minus the mean log-probability of its reported alternatives. The confidence
    of a chain is computed from groups of its tokens, as `confidence` says. The model must report
    log-probabilities; a chain without them does not vote, and a note `score.missing` says why. If no chain
    may vote, all answers count the same.

    Best for long reasoning whose weak passages show in the probabilities. Trade-off: only endpoints that
    report log-probabilities. Calls: `attempts`.

    References:
        Fu et al. 2025, Deep Think with Confidence, arXiv:2508.15260, sections 3.1 and 3.2 (offline).
    """

    kind: ClassVar[str] = "deep_conf"

    scale: ClassVar[str] = "attempts"

    attempts: Annotated[int, Field(ge=1)] = 16
    """The number of chains."""

    confidence: Confidence = "tail"
    """The confidence of a chain: the mean of its least confident group (`lowest`), of the least confident
    tenth of its groups (`bottom`), of its last group (`tail`), or of all tokens (`mean`).
    """

    group: Annotated[int, Field(ge=1)] = 2048
    """Tokens of a group, a sliding window over the chain. A shorter chain is one group."""

    top: Annotated[float, Field(gt=0, le=1)] = 0.1
    """The share of the answered chains that have a vote: those with the highest confidence (η in the
    paper)."""

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, parent_of(at), task.question)
        chains = yield from self._chains(task, at, range(self.attempts))
        bar = quantile([chain.weight for chain in chains if chain.votes_above(0.0)], 1 - self.top)
        return (yield from self._vote(task, chains, bar))

    def max_calls(self, task: Task) -> int:
        return self.attempts

    def _chains(self, task: Task, at: str, numbers: Sequence[int]) -> Procedure[list[_Chain]]:
        return (yield from gather([self._chain(task, at, number) for number in numbers], at_most=1))

    def _chain(self, task: Task, at: str, number: int) -> Procedure[_Chain]:
        call = self.call(at, "answer", task.answer_prompt(True), number)
        reply = yield from ask(msgspec.structs.replace(call, logprobs=ALTERNATIVES))
        if reply.error is not None:
            yield call_failed(at, "answer", reply.error)
            return _Chain(Answer("", stop_of(reply.error)), None)
        thought = yield from emit(Thought(f"{at}.{number}", at, reply.text))
        text = task.domain.read_answer(task, thought.text) or ""
        confidence = None
        if tokens := confidences_of(reply):
            confidence = confidence_of(tokens, self.confidence, self.group)
        else:
            reason = "the model reported no log-probabilities"
            yield Note("score.missing", thought.id, {"by": self.kind, "reason": reason})
        return _Chain(Answer(text, "answered", thought.id), confidence)

    def _vote(self, task: Task, chains: Sequence[_Chain], bar: float) -> Procedure[Answer]:
        weights = [chain.weight if chain.votes_above(bar) else 0.0 for chain in chains]
        for chain, weight in zip(chains, weights, strict=True):
            if chain.answer.node is not None:
                data = {"confidence": chain.confidence, "votes": weight > 0}
                yield Note("deep_conf.chain", chain.answer.node, data)
        answers = [chain.answer for chain in chains]
        return (yield from choose_by_vote(task, answers, self.kind, weights if any(weights) else None))


class DeepConfOnline(DeepConf):
    """DeepConf that sets a threshold of confidence by the first chains, and stops when the votes agree.

    The threshold is the confidence that the share `top` of the first `warmup` chains reaches; chains without
    log-probabilities are not counted. Further chains run `batch` at a time, and chains below the threshold do
    not vote. A running call is not stopped when its confidence falls: a chain below the threshold is paid in
    full, and only chains that are not started are saved.

    Best for easy and hard questions mixed. Trade-off: the batches run one after the other. Calls: at most
    `attempts`, at least `warmup`.

    References:
        Fu et al. 2025, Deep Think with Confidence, arXiv:2508.15260, section 3.3 (online; lowest group
        confidence, adaptive sampling). The published package deepconf 0.1.0 has no adaptive sampling, and
        never drops a further chain that is shorter than a group.
    """

    kind: ClassVar[str] = "deep_conf_online"

    attempts: Annotated[int, Field(ge=1)] = 64
    """The most chains, those of the warm-up included."""

    confidence: Confidence = "lowest"

    top: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of the first chains that reach the threshold: 0.1 is DeepConf-low in the paper, 0.9
    DeepConf-high."""

    warmup: Annotated[int, Field(ge=1)] = 16
    """The number of first chains, which set the threshold."""

    batch: Annotated[int, Field(ge=1)] = 16
    """Chains after the warm-up that run concurrently, before the votes are counted again."""

    consensus: Annotated[float, Field(gt=0, le=1)] = 0.95
    """The sampling ends when one answer has this share of all votes (τ in the paper)."""

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, parent_of(at), task.question)
        chains = yield from self._chains(task, at, range(min(self.warmup, self.attempts)))
        known = [chain.confidence for chain in chains if chain.confidence is not None]
        bar = quantile(known, 1 - self.top)
        yield Note("deep_conf.bar", at, {"confidence": bar if known else None})
        while len(chains) < self.attempts and not self._agree(task, chains, bar):
            if any(halts(chain.answer.stop_reason) for chain in chains):
                break
            numbers = range(len(chains), min(len(chains) + self.batch, self.attempts))
            chains += yield from self._chains(task, at, numbers)
        return (yield from self._vote(task, chains, bar))

    def _agree(self, task: Task, chains: Sequence[_Chain], bar: float) -> bool:
        """Whether one answer has the share `consensus` of the votes."""
        voters = [chain for chain in chains if chain.votes_above(bar)]
        weights = [chain.weight for chain in voters]
        votes = votes_of(task, [chain.answer for chain in voters], weights)
        return bool(votes) and max(votes.values()) >= self.consensus * sum(weights)


class _Chain(NamedTuple):
    """One chain of thought. The confidence is `None` if the call failed or reported no log-probabilities."""

    answer: Answer
    confidence: float | None

    @property
    def weight(self) -> float:
        """The weight of the vote: the confidence, or 0 if it is `None`."""
        return self.confidence or 0.0

    def votes_above(self, bar: float) -> bool:
        return self.answer.text != "" and self.weight > 0 and self.weight >= bar
