"""φ-decoding: its values, prunings and ends are those of a second implementation that follows the record."""

import math
import re
from collections import Counter
from itertools import permutations
from random import Random

import numpy as np
import pytest
from support import TASK, Scripted, run, wait
from support.scripts import notes

import tot_lab as tl
from tot_lab.core.calls import TokenLogprob
from tot_lab.strategies.search.phi_decoding import clustered, draw

WORDS = ("add", "take", "double", "halve", "three", "seven", "nine", "twelve")
DEPTH = 5


class Replies:
    """A random tree of replies: the log-probabilities and the end of each, by id."""

    def __init__(self, seed, missing=0.0, lost=0.0):
        self.seed, self.missing, self.lost = seed, missing, lost

    def random(self, id, what):
        return Random(f"{self.seed} {id} {what}")

    def logprobs(self, id):
        random = self.random(id, "tokens")
        if random.random() < self.missing:
            return []
        return [random.uniform(-3, 0) for _ in range(random.randint(1, 4))]

    def is_lost(self, id):
        return self.random(id, "lost").random() < self.lost

    def done(self, id):
        return id.count(".") >= DEPTH or self.random(id, "done").random() < 0.15

    def text(self, id):
        words = " ".join(self.random(id, "text").choices(WORDS, k=3))
        return f"{id}: {words}\nAnswer: 7" if self.done(id) else f"{id}: {words}"

    def reply(self, call):
        id = f"{call.node}.{call.sample_index}"
        if self.is_lost(id):
            return tl.Reply(error="broken")
        tokens = tuple(TokenLogprob("t", value) for value in self.logprobs(id))
        return tl.Reply(self.text(id), logprobs=tokens)

    def run(self, search, depth=DEPTH + 1, **options):
        strategy = tl.TreeOfThoughts(
            search=search, evaluate="likelihood", stop=tl.Stop(solved=None, depth=depth), **options
        )
        return run(strategy, TASK, Scripted(self.reply))


# The second implementation: sklearn's TF-IDF and Lloyd's algorithm in numpy, and Algorithm 1 of the paper.


def vectors(texts):
    words = sorted({word for text in texts for word in re.findall(r"\w+", text.lower())})
    counts = np.array([[re.findall(r"\w+", text.lower()).count(word) for word in words] for text in texts])
    idf = np.log((1 + len(texts)) / (1 + (counts > 0).sum(axis=0))) + 1
    weighted = counts * idf
    return weighted / np.linalg.norm(weighted, axis=1, keepdims=True)


def lloyd(points, k):
    centers = [points[0]]
    while len(centers) < k:
        far = ((points[:, None] - np.array(centers)[None]) ** 2).sum(axis=2).min(axis=1).round(9)
        if not far.any():
            break
        centers.append(points[far.argmax()])
    centers, labels = np.array(centers), None
    while True:
        new = ((points[:, None] - centers[None]) ** 2).sum(axis=2).round(9).argmin(axis=1)
        if labels is not None and (new == labels).all():
            return new.tolist()
        labels = new
        for cluster in set(labels.tolist()):
            centers[cluster] = points[labels == cluster].mean(axis=0)


def norm(values, temperature):
    weights = np.exp(np.array(values) / temperature)
    return weights / weights.sum()


class Followed:
    """Repeats a recorded run: only what was drawn is taken from the record."""

    def __init__(self, tree, made, search):
        self.tree, self.made, self.search = tree, made, search
        self.drawn = notes(made, "phi_decoding.drawn")
        self.used = Counter()

    def sample(self, id, count):
        first = self.used[id]
        self.used[id] += count
        return [f"{id}.{k}" for k in range(first, first + count)]

    def foresee(self, id):
        """The continuation to the end, and F."""
        path = []
        while not self.tree.done((path or [id])[-1]):
            path += self.sample((path or [id])[-1], 1)
        foreseen = path or [id]
        values = [value for one in foreseen for value in self.tree.logprobs(one)]
        return (path or [id])[-1], "\n".join(map(self.tree.text, foreseen)), float(np.mean(values))

    def value(self, ids, before):
        """Check the recorded values. Returns the F and the last thought of each, the largest share, and what
        was drawn, in order."""
        ahead = {id: self.foresee(id) for id in ids}
        labels = lloyd(vectors([text for _, text, _ in ahead.values()]), self.search.clusters)
        tau = self.search.temperature
        advantage = norm([ahead[id][2] - before[id] for id in ids], tau)
        alignment = norm([labels.count(label) / len(ids) for label in labels], tau)
        recorded = self.drawn.pop(0)
        assert list(recorded) == list(ids)
        for k, terms in enumerate(recorded.values()):
            assert terms["advantage"] == pytest.approx(advantage[k])
            assert terms["alignment"] == pytest.approx(alignment[k])
            assert terms["cluster"] == labels[k]
        share = max(map(labels.count, labels)) / len(labels)
        values = {id: f for id, (_, _, f) in ahead.items()}
        ends = {id: end for id, (end, _, _) in ahead.items()}
        drawn = [id for id in ids if recorded[id]["drawn"] is not None]
        return values, ends, share, sorted(drawn, key=lambda id: recorded[id]["drawn"])

    def follow(self):
        """Returns why the foresight ended."""
        search, beams = self.search, {"0": 0.0}
        reason = "most"
        for step in range(1, search.most + 1):
            going_on = [id for id in beams if id == "0" or not self.tree.done(id)]
            if not going_on:
                reason = "finished"
                break
            count = search.count * (search.beams if step == 1 else 1)
            steps = [one for id in going_on for one in self.sample(id, count)]
            means = np.array([np.mean(self.tree.logprobs(id)) for id in steps])
            bar = means.mean() - search.deviations * means.std() - 1e-9
            kept = [id for id, mean in zip(steps, means, strict=True) if mean >= bar]
            self.reasons({*steps} - {*kept}, "low probability")
            ids = [id for id in beams if id not in going_on] + kept
            before = {id: beams[id] if id in beams else beams[id.rpartition(".")[0]] for id in ids}
            f, _, share, drawn = self.value(ids, before)
            assert len(drawn) == min(search.beams, len(ids))
            self.reasons({*ids} - {*drawn}, "not drawn")
            beams = {id: f[id] for id in drawn}
            if step >= search.least and share >= search.agreement - 1e-9:
                reason = "agreement"
                break
        _, ends, _, drawn = self.value(list(beams), beams)
        assert not self.drawn
        assert [node.id for node in self.made.tree if node.state == "answer"] == [ends[id] for id in drawn]
        assert len(self.made.tree) == 1 + sum(self.used.values())
        return reason

    def reasons(self, ids, reason):
        assert {self.made.tree[id].reason for id in ids} <= {reason}


@pytest.mark.slow
def test_the_values_and_the_ends_are_those_of_the_second_implementation():
    reasons = Counter()
    for seed in range(40):
        tree = Replies(seed)
        search = tl.searches.PhiDecoding(
            beams=1 + seed % 3,
            count=2 + seed % 2,
            clusters=1 + seed % 4,
            least=1 + seed % 3,
            most=2 + seed % 4,
            agreement=(0.5, 0.8)[seed % 2],
            deviations=(0.5, 1.0)[seed // 2 % 2],
        )
        made = tree.run(search)
        assert made.stop_reason == "answered"
        reasons[Followed(tree, made, search).follow()] += 1
    assert min(reasons[reason] for reason in ("most", "finished", "agreement")) >= 2


def test_the_defaults_are_those_of_the_paper():
    search = tl.searches.PhiDecoding()
    assert (search.beams, search.count, search.clusters, search.least, search.most) == (4, 4, 3, 4, 8)
    assert (search.agreement, search.temperature, search.deviations) == (0.7, 0.6, 1.0)


def test_draws_are_without_replacement_and_in_proportion_to_the_values():
    values = {"a": 1.0, "b": 2.0, "c": 5.0}
    random = Random(5)
    drawn = Counter(tuple(draw(random, values, 2)) for _ in range(20_000))
    total = sum(values.values())
    for first, second in permutations(values, 2):
        expected = values[first] / total * values[second] / (total - values[first])
        error = math.sqrt(expected * (1 - expected) / 20_000)
        assert abs(drawn[first, second] / 20_000 - expected) < 5 * error
    assert sum(drawn.values()) == 20_000
    assert sorted(draw(random, values, 9)) == ["a", "b", "c"]


def test_equal_texts_share_a_cluster_and_texts_without_words_are_one():
    assert clustered(["add three", "add three", "take nine"], 2) == [0, 0, 1]
    assert clustered(["same", "same"], 3) == [0, 0]
    assert clustered(["", "?!", "add"], 3) == [0, 0, 1]
    assert clustered(["2 + 3 = 5", "2 + 3 = 5", "2 + 3 = 6"], 2) == [0, 0, 1]  # digits are words


def test_every_proposal_asks_for_the_logprobs_of_its_own_tokens():
    model = Scripted(Replies(0).reply)
    strategy = tl.TreeOfThoughts(search=tl.searches.PhiDecoding(beams=1, count=2), evaluate=lambda t, p: 0.5)
    run(strategy, TASK, model)
    assert {(call.purpose, call.logprobs) for call in model.calls} == {("sample", 1)}


def test_foresight_takes_one_call_where_the_proposer_can_finish_a_path():
    def reply(call):
        whole = not call.stop
        text = "add three\n\ntake nine\n\nAnswer: 7" if whole else f"step {call.sample_index}"
        return tl.Reply(text, logprobs=(TokenLogprob("t", -0.5),), finish_reason="stop")

    model = Scripted(reply)
    strategy = tl.TreeOfThoughts(
        propose=tl.proposers.Continue(finish=True),
        search=tl.searches.PhiDecoding(beams=2, count=2, most=2),
        evaluate="likelihood",
        stop=tl.Stop(solved=None, depth=9),
    )
    made = run(strategy, TASK, model)
    assert made.answer == "7"
    assert made.usage.calls == 4 + 4 + 4 + 4 + 2  # two levels of steps and of foresight, and the last paths
    assert [bool(call.stop) for call in model.calls].count(False) == 10


def test_lost_replies_and_missing_tokens_cost_their_branch_only():
    ends = set()
    for seed in range(8):
        made = Replies(seed, missing=0.2, lost=0.25).run(tl.searches.PhiDecoding(beams=2, count=2, most=3))
        assert wait(made.replay()).identical
        ends.add(made.stop_reason)
        for values in notes(made, "phi_decoding.drawn"):
            assert sum(terms["alignment"] for terms in values.values()) == pytest.approx(1)
            known = [terms["advantage"] for terms in values.values() if terms["advantage"] is not None]
            assert not known or sum(known) == pytest.approx(1)
    assert "answered" in ends


def test_a_model_without_log_probabilities_is_drawn_by_alignment_alone():
    made = Replies(2, missing=1.0).run(tl.searches.PhiDecoding(beams=2, count=2))
    assert made.stop_reason == "answered"
    assert {note["by"] for note in notes(made, "score.missing")} == {"likelihood", "phi_decoding"}
    values = [terms for note in notes(made, "phi_decoding.drawn") for terms in note.values()]
    assert {terms["advantage"] for terms in values} == {None}
