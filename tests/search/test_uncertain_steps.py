"""MUR and uncertainty-guided branching: each equal to a second implementation on random trees of replies."""

import math
from itertools import pairwise
from random import Random

import pytest
from support import TASK, Scripted, run, wait
from support.scripts import notes

import tot_lab as tl
from tot_lab.core.calls import TokenLogprob
from tot_lab.core.records import Scored

DEPTH = 6


class Replies:
    """A random tree of replies: the tokens, the end and the score of each, by id."""

    def __init__(self, seed, *, missing=0.0, lost=0.0):
        self.seed, self.missing, self.lost = seed, missing, lost

    def random(self, id, what):
        return Random(f"{self.seed} {id} {what}")

    def tokens(self, id):
        """The probabilities of each token: that of the chosen one, and of the two most likely."""
        random = self.random(id, "tokens")
        if random.random() < self.missing:
            return []
        sure, made = random.uniform(0.3, 1), []
        for _ in range(random.randint(1, 4)):
            first = random.uniform(sure / 2 + 0.5, 1)
            second = random.uniform(0, 1 - first)
            made.append((random.choice([first, second + 1e-6]), first, second + 1e-6))
        return made

    def is_lost(self, id):
        return self.random(id, "lost").random() < self.lost

    def done(self, id):
        return id.count(".") >= DEPTH or (id != "0" and self.random(id, "done").random() < 0.1)

    def score(self, id):
        return round(self.random(id, "score").random(), 1)  # with ties

    def text(self, id):
        return f"{id}\nAnswer: 7" if self.done(id) else id

    def reply(self, call):
        id = f"{call.node}.{call.sample_index}"
        if self.is_lost(id):
            return tl.Reply(error="broken")
        tokens = tuple(
            TokenLogprob("t", math.log(p), {"a": math.log(first), "b": math.log(second)})
            for p, first, second in self.tokens(id)
        )
        return tl.Reply(self.text(id), logprobs=tokens)

    def run(self, search):
        def scored(task, path):
            return self.score(path[-1].splitlines()[0])

        model = Scripted(self.reply)
        stop = tl.Stop(solved=None, depth=DEPTH + 1)
        made = run(tl.TreeOfThoughts(search=search, evaluate=scored, stop=stop), TASK, model)
        assert {call.logprobs for call in model.calls} == {search.logprobs}
        return made


def mean_logprob(tokens):
    return sum(math.log(p) for p, *_ in tokens) / len(tokens)


def difference(tokens):
    return sum(1 - (first - second) for _, first, second in tokens) / len(tokens)


def published_mur(tree, count, momentum_rate, scaling_rate):
    """After the code of Yan et al., which works with log-probabilities where the paper has uncertainties.

    Returns the chosen steps, and how often steps were sampled again.
    """
    path, momentum, again = ["0"], 0.0, 0
    for step in range(DEPTH):
        chosen = f"{path[-1]}.0"
        signal = mean_logprob(tree.tokens(chosen))
        if math.exp(signal) < math.exp(momentum) * scaling_rate and step > 0:
            candidates = [f"{path[-1]}.{k}" for k in range(1, count + 1)]
            chosen = max(candidates, key=tree.score)  # of equals the first
            signal = mean_logprob(tree.tokens(chosen))
            again += 1
        momentum = momentum_rate * momentum + (1 - momentum_rate) * signal
        path.append(chosen)
        if tree.done(chosen):
            return path, again
    raise AssertionError


def published_branching(tree, count, threshold, tokens):
    """After ThinkBooster, whose token mode looks at the first token of the next step."""
    path, again = ["0"], 0
    while not tree.done(path[-1]):
        chosen = f"{path[-1]}.0"
        measured = tree.tokens(chosen)
        if difference(measured[:1] if tokens == "first" else measured) > threshold:
            candidates = [f"{path[-1]}.{k}" for k in range(1, count + 1)]
            chosen = min(candidates, key=lambda id: difference(tree.tokens(id)))
            again += 1
        path.append(chosen)
    return path, again


def check(made, published, count):
    path, again = published
    assert made.tree[path[-1]].state == "answer"
    assert made.stop_reason == "answered"
    assert len(made.tree) == 1 + (len(path) - 1) + again * count
    kept = [node.id for node in made.tree if node.state in ("kept", "answer", "complete", "proposed")]
    assert kept == path


@pytest.mark.slow
def test_mur_is_the_published_code():
    total = 0
    for seed in range(120):
        tree, count = Replies(seed), 1 + seed % 4
        momentum, gamma = (0.0, 0.5, 0.9)[seed % 3], (0.5, 0.8, 1.0)[seed // 3 % 3]
        published = published_mur(tree, count, momentum, gamma)
        check(tree.run(tl.searches.MUR(count=count, momentum=momentum, gamma=gamma)), published, count)
        total += published[1]
    assert total > 100


@pytest.mark.slow
@pytest.mark.parametrize("tokens", ["first", "all"])
def test_branching_is_the_published_code(tokens):
    total = 0
    for seed in range(60):
        tree, count, threshold = Replies(seed), 1 + seed % 4, (0.1, 0.3, 0.6)[seed % 3]
        published = published_branching(tree, count, threshold, tokens)
        search = tl.searches.UncertaintyBranching(count=count, threshold=threshold, tokens=tokens)
        check(tree.run(search), published, count)
        total += published[1]
    assert total > 40


def test_the_defaults_are_the_published_ones():
    mur, branching = tl.searches.MUR(), tl.searches.UncertaintyBranching()
    assert (mur.count, mur.momentum, mur.gamma) == (4, 0.9, 0.9)
    assert (branching.count, branching.threshold, branching.tokens) == (8, 0.3, "first")


def test_the_reasons_of_a_second_sampling_are_recorded():
    tree = Replies(1)
    made = tree.run(tl.searches.MUR(momentum=0.5, gamma=1.0))
    whys = [pick["why"] for pick in notes(made, "tot.picked") if "why" in pick]
    assert whys
    for why in whys:
        ((parent, terms),) = why.items()
        assert terms["uncertainty"] == pytest.approx(-mean_logprob(tree.tokens(f"{parent}.0")))
        assert terms["uncertainty"] > terms["momentum"]


@pytest.mark.parametrize("search", [tl.searches.MUR(), tl.searches.UncertaintyBranching()])
def test_a_model_without_log_probabilities_gives_one_chain_and_a_note_for_each_step(search):
    made = Replies(0, missing=1.0).run(search)
    steps = len(made.tree) - 1
    assert made.usage.calls == steps
    assert len(notes(made, "score.missing")) == steps
    assert {note["by"] for note in notes(made, "score.missing")} == {search.kind}


@pytest.mark.parametrize(
    "search", [tl.searches.MUR(gamma=1.0), tl.searches.UncertaintyBranching(threshold=0)]
)
def test_replies_that_are_lost_or_have_no_tokens_cost_their_branch_only(search):
    ends = set()
    for seed in range(12):
        made = Replies(seed, missing=0.2, lost=0.3).run(search)
        ends.add(made.stop_reason)
        assert wait(made.replay()).identical
        for pick, later in zip(notes(made, "tot.picked"), notes(made, "tot.picked")[1:], strict=False):
            failed = made.tree[pick["parents"][0]].state == "failed"
            assert not failed
            assert later["parents"][0] in made.tree
    assert "answered" in ends


def test_a_thought_that_a_person_writes_has_no_tokens():
    """Its score counts for MUR, and its certainty for branching is the least."""
    tree = Replies(3)
    made = tree.run(tl.searches.MUR())
    lab = tl.Lab(Scripted(tree.reply), runs=None)
    changed = wait(lab.branch(made, "0.0", content="mine"))
    assert [note for note in notes(changed, "score.missing") if note["by"] == "mur"]
    assert any(isinstance(event, Scored) and event.id == "0.0" for event in changed.events)


class MostCertain(tl.searches.Search):
    """A search of one's own: two steps, of which the one with the surest first token goes on."""

    logprobs = 3

    def run(self, state):
        last = state.root
        while last not in state.closed:
            steps = yield tl.Pick([last], 2)
            last = max(steps, key=lambda id: state.logprobs(id)[0])


def test_a_search_of_ones_own_may_read_the_tokens_of_its_proposals():
    tree = Replies(4)
    made = tree.run(MostCertain())
    picks = [pick["parents"][0] for pick in notes(made, "tot.picked")]
    assert len(picks) > 2
    for parent, chosen in pairwise(picks):
        first = {f"{parent}.{k}": tree.tokens(f"{parent}.{k}")[0][0] for k in range(2)}
        assert chosen == max(first, key=first.get)
