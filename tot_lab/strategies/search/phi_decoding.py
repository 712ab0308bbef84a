"""φ-decoding: each step is drawn by the value of its simulated continuation."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

from pydantic import Field

from tot_lab.core.records import Note
from tot_lab.strategies.search.likelihood import note_without_tokens
from tot_lab.strategies.search.sampling import Count, Unit
from tot_lab.strategies.search.searches import Pick, Search, Searching, SearchState

if TYPE_CHECKING:
    from random import Random

EXACT = 1e-9
"""Tolerance of comparisons: smaller differences are rounding errors."""

ROUNDS = 100
"""The most rounds of the clustering."""


class PhiDecoding(Search):
    """φ-decoding: each step of a beam is drawn by the advantage and the agreement of its foresight.

    Each of `beams` paths gets `count` next steps (M and N in the paper; the first level has M · N). Steps
    whose mean log-probability is more than `deviations` standard deviations below the mean of all are pruned.
    Each other step is continued to the end, one step at a time, or in one call with `Continue(finish=True)`:
    its foresight F is the mean log-probability of that continuation. A step is worth the sum of two shares:

    - advantage: softmax((F - F₀) / `temperature`), where F₀ is the F of its beam one step earlier, and 0 at
      step 1;
    - alignment: softmax(c / `temperature`), where c is the share of all continuations in its cluster.

    The next beams are drawn in proportion to this value, without replacement. From step `least` on, foresight
    ends when one cluster has the share `agreement` of the continuations, and after step `most` in any case.
    Then each beam is continued to the end once more, and the answer is drawn in the same way. A finished path
    stays a beam; its F is that of its last step. If `stop.depth` ends the path that is drawn at the end, the
    answer rule decides.

    The continuations are clustered by k-means on TF-IDF vectors of their words. The first center is the first
    continuation, and each further center is the continuation that is farthest from the centers so far, so
    that no random numbers are needed.

    The model must report log-probabilities, and the proposer must make one thought per reply (`Sample`,
    `Continue`). The advantage of a step without log-probabilities is 0; a note `score.missing` says so. The
    search ignores scores: choose `evaluate="likelihood"`, which makes no calls. A note `phi_decoding.drawn`
    records each draw.

    References:
        Xu et al. 2025, φ-Decoding: Adaptive Foresight Sampling, arXiv:2503.13288, section 2 and Algorithm 1.
        The paper draws by exp(value / τ) and gives no τ; its code draws by the value, as here. The code has
        temperatures of 0.1 and 1, where the paper has 0.6, and chooses the last path from the larger of two
        clusters.
    """

    kind: ClassVar[str] = "phi_decoding"
    logprobs: ClassVar[int] = 1
    scale: ClassVar[str] = "beams"

    beams: Count = 4
    """Paths that are continued at each step: M."""

    count: Count = 4
    """Next steps proposed for each path: N."""

    clusters: Count = 3
    """Clusters of continuations: K."""

    least: Count = 4
    """The first step after which agreement may end the foresight: T_min."""

    most: Count = 8
    """The last step with foresight: T_max."""

    agreement: Unit = 0.7
    """Share of the continuations in the largest cluster at which the foresight ends (δ)."""

    temperature: Annotated[float, Field(gt=0)] = 0.6
    """The temperature of both softmaxes (τ1 and τ2)."""

    deviations: Annotated[float, Field(ge=0)] = 1.0
    """Standard deviations below the mean of all steps beyond which a step is pruned (k)."""

    def run(self, state: SearchState) -> Searching:
        random = yield state.random_numbers()
        beams: dict[str, float | None] = {state.root: 0.0}
        for step in range(1, self.most + 1):
            going_on = state.open(beams)
            if not going_on:
                break
            each = self.count * (self.beams if step == 1 else 1)
            sampled = yield from self._confident(state, (yield Pick(going_on, each)))
            candidates = [*(id for id in beams if id not in going_on), *sampled]
            if not candidates:
                return None
            ahead = yield from self._foresee(state, candidates)
            before = {id: beams.get(id, beams.get(state.tree[id].parent or "")) for id in candidates}
            drawn, share = yield from self._draw(state, random, ahead, before, self.beams)
            yield from state.prune([id for id in candidates if id not in drawn], "not drawn")
            beams = {id: ahead[id].logprob for id in drawn}
            if step >= self.least and share >= self.agreement - EXACT:
                break
        ahead = yield from self._foresee(state, [*beams])
        drawn, _ = yield from self._draw(state, random, ahead, beams, 1)
        end = ahead[drawn[0]].end
        return end if end in state.finished else None

    def _confident(self, state: SearchState, steps: Sequence[str]) -> Searching:
        """Prune the steps with a low mean log-probability (in-width pruning). Returns the remaining steps."""
        means = {id: _mean(state.logprobs(id)) for id in steps}
        known = [mean for mean in means.values() if mean is not None]
        bar = fmean(known) - self.deviations * pstdev(known) - EXACT if known else -math.inf
        low = {id: mean for id, mean in means.items() if mean is not None and mean < bar}
        yield from state.prune(low, "low probability")
        return [id for id in steps if id not in low]

    def _foresee(self, state: SearchState, steps: Sequence[str]) -> Searching:
        """Continue each of `steps` to the end. Returns the foresight of each."""
        ends = {id: id for id in steps}
        made: dict[str, list[str]] = {id: [] for id in steps}
        finisher = state.strategy.propose.finisher()
        going_on = [id for id in steps if id not in state.closed]
        while going_on:
            children = yield Pick([ends[id] for id in going_on], 1, finisher)
            below = {state.tree[child].parent: child for child in children if child not in state.grafted}
            going_on = [id for id in going_on if ends[id] in below]
            for id in going_on:
                ends[id] = below[ends[id]]
                made[id].append(ends[id])
            going_on = [id for id in going_on if ends[id] not in state.closed]
        ahead: dict[str, _Foresight] = {}
        for id in steps:
            foreseen = made[id] or ([id] if id in state.closed else [])
            logprobs = [value for one in foreseen for value in state.logprobs(one)]
            ahead[id] = _Foresight(
                _mean(logprobs), "\n".join(state.tree[one].text for one in foreseen), ends[id]
            )
            if not logprobs:
                yield note_without_tokens(id, self.kind)
        return ahead

    def _draw(
        self,
        state: SearchState,
        random: Random,
        ahead: Mapping[str, _Foresight],
        before: Mapping[str, float | None],
        count: int,
    ) -> Searching:
        """Draw up to `count` steps by their value. Returns them, and the share of the largest cluster."""
        gains: dict[str, float] = {}
        for id, foresight in ahead.items():
            earlier = before[id]
            if foresight.logprob is not None and earlier is not None:
                gains[id] = foresight.logprob - earlier
        labels = clustered([foresight.text for foresight in ahead.values()], self.clusters)
        sizes = Counter(labels)
        shares = {id: sizes[label] / len(labels) for id, label in zip(ahead, labels, strict=True)}
        advantage, alignment = softmax(gains, self.temperature), softmax(shares, self.temperature)
        drawn = draw(random, {id: advantage.get(id, 0.0) + alignment[id] for id in ahead}, count)
        terms = {
            id: {
                "advantage": advantage.get(id),
                "alignment": alignment[id],
                "cluster": label,
                "drawn": drawn.index(id) if id in drawn else None,
            }
            for id, label in zip(ahead, labels, strict=True)
        }
        yield Note("phi_decoding.drawn", state.root, terms)
        return drawn, max(shares.values())

    def max_expansions_by_count(self, branch: int, depth: int) -> list[tuple[int, int]]:
        steps = range(1, min(self.most, depth) + 1)
        ahead = self.beams * self.count * sum(depth - step for step in steps) + self.beams * depth
        return [
            (self.beams * self.count, 1),
            (self.count, self.beams * (len(steps) - 1)),
            (1, ahead),
        ]

    def max_picks(self, branch: int, depth: int) -> int:
        steps = range(1, min(self.most, depth) + 1)
        return sum(1 + depth - step for step in steps) + depth


class _Foresight(NamedTuple):
    """The continuation of a step: the mean log-probability of its tokens (`None` if unknown), its text, and
    the id of its last thought."""

    logprob: float | None
    text: str
    end: str


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def softmax(values: Mapping[str, float], temperature: float) -> dict[str, float]:
    """The softmax of `values` / `temperature`."""
    highest = max(values.values(), default=0.0)
    weights = {id: math.exp((value - highest) / temperature) for id, value in values.items()}
    total = math.fsum(weights.values())
    return {id: weight / total for id, weight in weights.items()}


def draw(random: Random, values: Mapping[str, float], count: int) -> list[str]:
    """Draw up to `count` ids in proportion to their values, without replacement."""
    left, drawn = dict(values), list[str]()
    while left and len(drawn) < count:
        drawn += random.choices([*left], [*left.values()])
        del left[drawn[-1]]
    return drawn


def clustered(texts: Sequence[str], most: int) -> list[int]:
    """The number of the cluster of each text, by k-means on TF-IDF vectors with at most `most` clusters."""
    vectors = tf_idf(texts)
    centers = [vectors[0]]
    while len(centers) < most:
        distances = [min(_distance(vector, center) for center in centers) for vector in vectors]
        if max(distances) == 0:
            break
        centers.append(vectors[distances.index(max(distances))])
    labels: list[int] = []
    for _ in range(ROUNDS):
        nearest = []
        for vector in vectors:
            distances = [_distance(vector, center) for center in centers]
            nearest.append(distances.index(min(distances)))
        if nearest == labels:
            break
        labels = nearest
        for number in set(labels):
            inside = [vector for vector, label in zip(vectors, labels, strict=True) if label == number]
            words = dict.fromkeys(word for vector in inside for word in vector)
            centers[number] = {
                word: sum(vector.get(word, 0.0) for vector in inside) / len(inside) for word in words
            }
    return labels


def tf_idf(texts: Sequence[str]) -> list[dict[str, float]]:
    """The TF-IDF vector of each text (smoothed inverse document frequency), normalised to length 1."""
    counts = [Counter(re.findall(r"\w+", text.lower())) for text in texts]
    having = Counter(word for words in counts for word in words)
    vectors = []
    for words in counts:
        weighted = {
            word: number * (math.log((1 + len(texts)) / (1 + having[word])) + 1)
            for word, number in words.items()
        }
        length = math.sqrt(math.fsum(value * value for value in weighted.values())) or 1.0
        vectors.append({word: value / length for word, value in weighted.items()})
    return vectors


def _distance(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """The squared Euclidean distance, rounded so that rounding errors do not break ties."""
    words = dict.fromkeys([*one, *other])
    return round(math.fsum((one.get(word, 0.0) - other.get(word, 0.0)) ** 2 for word in words), 9)
