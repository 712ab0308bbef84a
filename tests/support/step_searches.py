"""Second implementations of published step searches on recorded trees of replies. Needs no package.

Each was written after the code of its source and runs in two ways. As published, it does what the source
does. With `here=True` it takes the other way at the few points at which tot_lab differs on purpose, and
counts each of them that it comes to in `differences`. A search that comes to none is the published one.

The sources are search-and-learn at 6f81cac (`beam_search.py`, `diverse_verifier_tree_search.py`, `utils.py`,
`score.py`) and its-hub 1.2.0 (`beam_search.py`, `particle_gibbs.py`, `step_generation.py`).
"""

import math
import re
from collections import Counter
from operator import attrgetter

from support.reply_trees import CUT, ENDED, SEPARATED, Samples, begun

AGGREGATES = {"last": lambda rewards: rewards[-1], "min": min, "prod": math.prod}
GREEDY = "greedy"
"""The sample of a request at temperature 0."""

BOX = re.compile(r"\\boxed\{\d\}")


class Candidate:
    """A partial solution. Copies of one thought are the same object."""

    def __init__(self, steps=(), score=0.0, end=SEPARATED):
        self.steps, self.score, self.end = steps, score, end

    @property
    def text(self):
        """The solution, without empty steps."""
        return begun(filter(None, self.steps))

    @property
    def states_answer(self):
        """Whether the last line of the last step states an answer."""
        return bool(self.steps) and BOX.search(self.steps[-1].rpartition("\n")[2]) is not None

    @property
    def finished(self):
        """Whether it is a whole solution, and not one that was cut off or stopped at the last level."""
        return self.end == ENDED or (self.end == SEPARATED and self.states_answer)


class StepSearch:
    """What the searches have in common.

    Attributes:
        samples: What was asked for at each depth.
        levels: The candidates of each depth.
        final: The candidates among which the answer is chosen, in order.
        differences: How often the search came to each point at which tot_lab differs.
        determined: How many levels do not depend on the order of equal candidates.
    """

    def __init__(self, tree, depth, aggregate="last", *, here=True, by_thought=True):
        self.tree, self.depth, self.aggregate, self.here = tree, depth, AGGREGATES[aggregate], here
        self.samples = Samples(by_thought)
        self.levels, self.final, self.differences, self.determined = [], [], Counter(), 99

    @property
    def answer(self):
        """The best candidate at the end; of equals the first."""
        candidates = [one for one in self.final if one.finished or not self.here]
        return max(candidates, key=attrgetter("score"), default=None)

    @property
    def answers(self):
        """The texts of the best finished candidates, more than one if their scores are equal."""
        finished = [one for one in self.final if one.finished]
        return {one.text for one in finished if one.score == max(map(attrgetter("score"), finished))}

    def continued(self, parents, whole=False):
        """A new candidate for each of `parents`, `None` if it has no further step here.

        Args:
            parents: Candidates. A candidate stands there once for each of its steps.
            whole: Whether the rest of the solution is asked for, and not one step.
        """
        texts, made = [begun(parent.steps) for parent in parents], []
        for parent, text, sample in zip(parents, texts, self.samples.take(texts, parents), strict=True):
            if whole:
                steps, end = self.tree.rest(text, sample)
            else:
                step, end = self.tree.reply(text, sample)
                steps = [step]
            made.append(self.after(parent, steps, end))
        self.levels.append(sorted(one.text for one in made if one is not None))
        return made

    def after(self, parent, steps, end):
        """The candidate after `parent` of a reply, `None` if it is no step here."""
        if self.here and steps == [""]:
            if not parent.steps:
                self.differences["an empty first step"] += 1
                return None
            if end == SEPARATED:
                self.differences["a step that is only a separator"] += 1
                return None
            return Candidate(parent.steps, parent.score, ENDED)
        steps = (*parent.steps, *steps)
        return Candidate(steps, self.aggregate(self.tree.rewards(steps)), end)

    def ends(self, one, at_box=False):
        """Whether a candidate ends."""
        raise NotImplementedError

    def best(self, candidates, kept):
        """The `kept` best, best first; of equals the first."""
        ranked = sorted(candidates, key=attrgetter("score"), reverse=True)
        equal = [one for one in ranked if one.score == ranked[:kept][-1].score]
        if len({one.text for one in equal}) > 1 and equal[-1] in ranked[kept:]:
            self.undetermined()
        return ranked[:kept]

    def undetermined(self):
        """Called when the steps from here on depend on the order of equal candidates."""
        self.determined = min(self.determined, len(self.levels))


# search-and-learn. Its server tells the end of the sequence from a separator, and a cut is an end for it.


class SearchAndLearn(StepSearch):
    def ends(self, one, at_box=False):
        if not self.here:
            return one.end != SEPARATED or (at_box and any("boxed{" in step for step in one.steps))
        if one.end == CUT:
            self.differences["a step that is cut"] += 1
            return False
        if one.end == SEPARATED and BOX.search(one.steps[-1]) and one.states_answer != at_box:
            what = "an answer before the end" if one.states_answer else "a partial result in a box"
            self.differences[what] += 1
        return one.finished


class PublishedBeam(SearchAndLearn):
    """`n` candidates a level, of which the `n // m` best are continued.

    The answer is that with the setting `sort_completed`. Without it, only the first `n` of `final` count.
    """

    def run(self, n, m):
        active, completed = [Candidate()], []
        for iteration in range(self.depth):
            last = iteration == self.depth - 1
            parents = (active * (n // len(active) + 1))[:n]
            if n % len(active) and len({one.text for one in active}) < len(active):
                self.undetermined()  # which of equal candidates gets one step more
            made = self.continued(parents, whole=last and not self.here)
            ended = [one is not None and self.ends(one) for one in made]
            completed += [one for one, end in zip(made, ended, strict=True) if end]
            active = [one for one, end in zip(made, ended, strict=True) if one is not None and not end]
            if not active:
                break
            self.differences["open candidates at the last level"] += last
            best = self.best(active, n // m)
            active = [one for one in active if one in best]
        self.final = completed
        return self

    def best(self, candidates, kept):
        best = super().best(candidates, kept)
        return best if self.here else sorted(candidates, key=attrgetter("score"))[-kept:]


class PublishedDVTS(SearchAndLearn):
    """`n // m` subtrees, each of which goes on with the best of `m` steps until that one ends.

    A step is scored with up to `lookahead` further steps, which are not sampled but always the same.
    """

    lookahead = 0

    def after(self, parent, steps, end):
        one = super().after(parent, steps, end)
        if one is not None and self.lookahead:
            ahead = [*one.steps]
            for _ in range(self.lookahead):
                if end != SEPARATED:
                    break
                step, end = self.tree.reply(begun(ahead), GREEDY)
                ahead.append(step)
            one.score = self.aggregate(self.tree.rewards(ahead))
        return one

    def run(self, n, m):
        going_on, chosen = dict.fromkeys(range(n // m), Candidate()), {}
        for iteration in range(self.depth):
            last = iteration == self.depth - 1
            parents = [one for one in going_on.values() for _ in range(m)]
            made = iter(self.continued(parents, whole=last and not self.here))
            for number in list(going_on):
                steps = [one for one in (next(made) for _ in range(m)) if one is not None]
                best = max(steps, key=attrgetter("score"), default=None)
                going_on[number] = chosen[number] = best
                if best is None or self.ends(best, at_box=True):
                    del going_on[number]
            if not going_on:
                break
            self.differences["open candidates at the last level"] += last
        self.final = [chosen[number] for number in sorted(chosen) if chosen[number] is not None]
        return self


# its_hub. It reads the text of a reply alone.


class ItsHub(StepSearch):
    def after(self, parent, steps, end):
        if self.here and steps == [""] and parent.steps:
            self.differences["an empty step ends a path"] += 1
            return Candidate(parent.steps, parent.score, ENDED)
        return super().after(parent, steps, CUT if end == CUT else SEPARATED)

    def ends(self, one, at_box=True):
        boxed = "\\boxed" in one.steps[-1]
        if not self.here:
            return boxed
        if one.end == ENDED:
            return True
        if boxed and one.end == CUT:
            self.differences["a step that is cut"] += 1
        elif boxed and not one.states_answer:
            self.differences["a partial result in a box"] += 1
        return one.finished

    def advanced(self, candidates, ended):
        """The candidates after one more step of each that has not ended. Adds those that end to `ended`."""
        asked = [one for one in candidates if one not in ended]
        fresh = iter(made := self.continued(asked))
        candidates = [one if one in ended else next(fresh) for one in candidates]
        ended.update(one for one in made if one and (self.ends(one) or len(self.levels) == self.depth))
        return [one for one in candidates if one is not None]


class ItsHubBeam(ItsHub):
    """`copies` candidates, and then `copies` of each of the `width` best. Ended ones compete for places."""

    def run(self, width, copies):
        candidates, ended = [Candidate()] * copies, set()
        while not ended.issuperset(candidates):
            candidates = self.advanced(candidates, ended)
            candidates = self.best(candidates, width) * copies if candidates else []
        self.final = candidates
        return self


class ItsHubParticles(ItsHub):
    """Particle filtering. Published, it draws once more when all particles have ended."""

    def run(self, particles, random):
        population, ended = [Candidate()] * particles, set()
        while not ended.issuperset(population):
            population = self.advanced(population, ended)
            if self.here and ended.issuperset(population):
                break
            scores = [min(max(one.score, 1e-7), 1 - 1e-7) for one in population]
            logits = [math.log(score / (1 - score)) for score in scores]
            weights = [math.exp(logit - max(logits)) for logit in logits]
            population = random.choices(population, weights, k=particles)
        self.final = population
        return self
