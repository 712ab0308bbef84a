"""The small language models: their language, their exact answers, their network and their endpoint.

The weights are random here. What the shipped weights can do is in their card.
"""

import asyncio
import json
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest
from support import wait
from support.tiny_model import WEIGHTS

import tot_lab as tl
from tot_lab.core.arithmetic import win_share
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.task import Task
from tot_lab.domains.puzzles.countdown import Countdown
from tot_lab.domains.puzzles.countdown_solver import plan_to
from tot_lab.models.stack import Failure, NullObserver
from tot_lab.models.tiny.endpoint import _SHIPPED, Tiny
from tot_lab.models.tiny.language import PIECES, decode, encode_prompt, encode_reply
from tot_lab.models.tiny.network import Decoder, Network
from tot_lab.models.tiny.problems import Examples, held_out, moves, reaches, training_hands
from tot_lab.models.tiny.requests import read_prompt
from tot_lab.models.tiny.tasks import held_out_tasks
from tot_lab.views.report import report_html

HAND = tl.game24("10 6 5 4")
NUMBERS = Task(
    domain=Countdown(),
    question="Using all the numbers 19, 3, 16, 20, create an expression that equals 53.\n"
    "You can only use each number once.",
)
FIRST = {HAND.question: "10 - 4 = 6 (left: 5 6 6)", NUMBERS.question: "19 * 3 = 57"}


@pytest.fixture
def model():
    return Tiny(weights=str(WEIGHTS))


def call(*texts, **settings):
    roles = ["user", "assistant"]
    return Call("0", "x", tuple(map(Message, roles, texts)), **settings)


def answer(model, *calls):
    async def each():
        replies = await asyncio.gather(*(model.answer([one], NullObserver()) for one in calls))
        return [reply for (reply,) in replies]

    return wait(each())


# Requests.


@pytest.mark.parametrize(
    ("task", "left", "after", "words"),
    [(HAND, "24:4 5 6 10>", "24:5 6 6>", "VXRD"), (NUMBERS, "53:3 16 19 20>", "53:16 20 57>", "WYSE")],
    ids=["game24", "countdown"],
)
def test_a_prompt_of_a_domain_becomes_a_request(task, left, after, words):
    domain, path = task.domain, [FIRST[task.question]]
    value, check, steps, direct = words
    assert read_prompt(domain.sample_prompt(task, [])) == f"P1 {left}"
    assert read_prompt(domain.propose_prompt(task, path, 5)) == f"P5 {after}"
    assert read_prompt(domain.propose_prompt(task, path, 50)) == f"P8 {after}"
    assert read_prompt(domain.value_prompt(task, path)) == f"{value} {after}"
    assert read_prompt(domain.judge_prompt(task, path)) == f"J {after}"
    assert read_prompt(domain.answer_prompt(task, True)) == f"{steps} {left}"
    assert read_prompt(domain.answer_prompt(task, False)) == f"{direct} {left}"
    target, numbers = left[:-1].split(":")
    assert read_prompt(domain.vote_prompt(task, [[], path])) == f"B {target}:{numbers}|{after[3:]}"
    assert read_prompt(domain.joint_prompt(task, [], [*path, *path])) == f"A {after[:-1]}|{after[3:]}"
    claimed = domain.value_prompt(task, [*path, "Answer: (6-4) * 5 = 10"])
    assert read_prompt(claimed) == f"{check} {left[:-1]}|(6 - 4) * 5>"


@pytest.mark.parametrize("task", [HAND, NUMBERS], ids=["game24", "countdown"])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda task: "What is 2 + 2?",
        lambda task: "",
        lambda task: task.domain.task_prompt(task, True),
        lambda task: task.domain.sample_prompt(task, []) + "!",
        lambda task: "Be brief. " + task.domain.propose_prompt(task, [], 3),
        lambda task: task.domain.sample_prompt(task.with_context("a hint"), []),
        lambda task: task.domain.value_prompt(task, ["no step at all"]),
        lambda task: task.domain.joint_prompt(task, [], []),
    ],
)
def test_any_other_prompt_is_refused(task, spoil):
    with pytest.raises(ValueError, match=r"not understood.*It answers the prompts of the Game of 24"):
        read_prompt(spoil(task))


@pytest.mark.parametrize(
    "question",
    [
        "Using all the numbers 19, 3, 16, 21, create an expression that equals 53.",
        "Using all the numbers 19, 3, 16, 20, create an expression that equals 530.",
        "Using all the numbers 1, 2, 3, 4, 5, create an expression that equals 53.",
    ],
)
def test_numbers_that_the_models_do_not_know_are_refused(question):
    task = Task(domain=Countdown(), question=question)
    with pytest.raises(ValueError, match="numbers from 1 to 20"):
        read_prompt(task.domain.sample_prompt(task, []))


# The language.


@pytest.mark.parametrize("number", [0, 7, 199, 200, 1009, 28561, 100_000_007])
def test_every_number_has_its_own_tokens(number):
    text = f"{number} + (1/{number}) = -{number}"
    assert decode(encode_reply(text)) == text
    assert encode_prompt(f"P1 24:{number} 5>") != encode_prompt(f"P1 24:{number}5>")


@pytest.mark.parametrize("text", ["four", "4 % 5", "4  + 5", "4\t+ 5", "é"])
def test_text_outside_the_language_is_an_error(text):
    with pytest.raises(ValueError, match="outside the language"):
        encode_reply(text)


# Exact answers.


@pytest.mark.slow
def test_the_solver_agrees_with_those_of_the_domains():
    random = Random(3)
    for _ in range(60):
        size = random.choice((2, 3, 3, 4))
        state = [random.randint(0, 14) for _ in range(size)]
        if random.random() < 0.4:
            state[0] = random.choice((Fraction(5, 3), Fraction(1, 4), -2, -7, 36))
        target = random.choice((24, 24, 24, random.randint(10, 99)))
        numbers = tuple(sorted(state))
        truth = plan_to(Fraction(target), tuple(map(Fraction, numbers))).solvable
        assert reaches(numbers, target) == truth, numbers
        if target == 24:
            assert (win_share([Fraction(value) for value in numbers]) > 0) == truth


def test_steps_are_those_that_the_domain_accepts():
    listed = moves((4, 5, 6, 10))
    text = "\n".join(map(str, listed))
    assert len(HAND.domain.read_proposals(HAND, [], text)) == len(listed)


@pytest.mark.slow
def test_held_out_problems_are_tasks():
    hands, numbers = held_out_tasks("game24"), held_out_tasks("gym/countdown")
    assert (len(hands), len(numbers)) == (271, 300)
    assert hands[7] == tl.game24(hands[7].question)
    assert {tuple(map(int, task.question.split())) for task in hands} <= {*map(tuple, held_out()["game24"])}
    assert all(read_prompt(task.domain.sample_prompt(task, [])) for task in numbers)
    assert len({task.id for task in [*hands, *numbers]}) == 571
    with pytest.raises(ValueError, match="must be 'game24' or 'gym/countdown': got 'general'"):
        held_out_tasks("general")


@pytest.mark.slow
def test_held_out_hands_begin_no_example():
    out = held_out()
    assert (len(out["game24"]), len(out["countdown"])) == (360, 300)
    hands = {tuple(hand) for hand in out["game24"]}
    assert len(hands) == 360
    assert len(training_hands(True)) == 1820 - 360
    others = {tuple(row[1:]) for row in out["countdown"]}
    for game24 in (True, False):
        assert not (hands | others) & {*training_hands(game24)}
    assert all(reaches(tuple(row[1:]), row[0]) for row in out["countdown"])


@pytest.mark.parametrize("hands", [[(4, 5, 6, 10)], [(1, 1, 1, 1)]])
def test_hands_that_are_all_alike_are_refused(hands):
    examples = Examples(Random(1), lambda game24: hands)
    with pytest.raises(ValueError, match=r"The hands must include an? (un)?solvable one: got \[\("):
        [examples.draw() for _ in range(200)]


def test_the_domains_read_what_the_models_learn_to_write():
    examples = Examples(Random(1), lambda game24: [(4, 5, 6, 10), (1, 2, 3, 4), (1, 1, 1, 1)])
    seen = set()
    for _ in range(250):
        one = examples.draw()
        letter, (target, _, rest) = one.prompt[0], one.prompt[:-1].split(" ", 1)[1].partition(":")
        count, last = rest.count("|") + 1, one.reply.split("\n")[-1]
        seen.add(letter)
        assert decode(encode_reply(one.given + one.reply)) == one.given + one.reply
        if letter in "VX":
            assert HAND.domain.read_value(one.reply) == {"sure": 20, "likely": 1, "impossible": 0.001}[last]
        elif letter in "WY":
            assert NUMBERS.domain.read_value(one.reply) == float(last.removeprefix("score: "))
        elif letter == "B":
            assert HAND.domain.read_vote(one.reply, count) == int(last.removeprefix("best: ")) - 1
        elif letter == "A":
            assert HAND.domain.read_joint(one.reply, ["x"] * count) == json.loads(one.reply)
        elif letter in "RD" and not one.given:
            task = tl.game24(rest)
            stated = task.domain.read_answer(task, one.reply)
            assert stated is not None
            assert task.grade(stated) == 1.0
        elif letter in "SE" and not one.given:
            text = (
                f"Using all the numbers {rest.replace(' ', ', ')}, create an expression that equals {target}."
            )
            task = Task(domain=Countdown(), question=text)
            assert task.grade(task.domain.read_answer(task, one.reply)) == 1.0
        elif letter == "J":
            assert one.reply == ("yes" if reaches(_numbers(rest), int(target)) else "no")
    assert seen >= set("PVWJXBARSD")


def _numbers(text):
    values = [Fraction(word) for word in text.split()]
    return tuple(int(value) if value.denominator == 1 else value for value in values)


# The network.


def expected_logits(path, tokens):
    """The logits after `tokens`, computed in float64 without a cache."""
    with np.load(path) as saved:
        weights = {name: saved[name].astype(np.float64) for name in saved.files if name != "facts"}

    def normed(x, scale):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale

    n, heads = len(tokens), 2
    x = weights["tokens"][tokens] + weights["places"][:n]
    for k in range(2):
        qkv = normed(x, weights[f"{k}.norm1"]) @ weights[f"{k}.qkv"]
        mixed = []
        for head in range(heads):
            q, key, value = (part[:, head * 16 : head * 16 + 16] for part in np.split(qkv, 3, axis=1))
            scores = np.where(np.tri(n, dtype=bool), q @ key.T / 4, -np.inf)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            mixed.append(shares / shares.sum(-1, keepdims=True) @ value)
        x = x + np.concatenate(mixed, 1) @ weights[f"{k}.out"]
        x = (
            x
            + np.maximum(normed(x, weights[f"{k}.norm2"]) @ weights[f"{k}.up"], 0) ** 2 @ weights[f"{k}.down"]
        )
    return (normed(x, weights["norm"]) @ weights["tokens"].T)[-1]


def test_the_cache_changes_nothing():
    network, random = Network(WEIGHTS), Random(2)
    texts = [[random.randrange(len(PIECES)) for _ in range(size)] for size in (1, 31, 32, 33, 64, 100, 128)]
    decoder = Decoder(network, len(texts))
    last = {}
    for at in range(128):
        some = [k for k, text in enumerate(texts) if at < len(text)]
        last |= dict(zip(some, decoder.step(some, [texts[k][at] for k in some]), strict=True))
    for k, text in enumerate(texts):
        np.testing.assert_allclose(last[k], expected_logits(WEIGHTS, text), atol=1e-3)


ONE_THREAD = """
import sys, time
from tot_lab.models.tiny.network import Decoder, Network
decoder = Decoder(Network(sys.argv[1]), 64)
whole, own = time.process_time(), time.thread_time()
for _ in range(10):  # longer than the threads of OpenBLAS spin after the start
    for slot in range(64):
        decoder.reset(slot)
    for _ in range(40):
        decoder.step(range(64), [5] * 64)
print(time.process_time() - whole, time.thread_time() - own)
"""


@pytest.mark.slow
def test_one_thread_computes(tmp_path):
    """Threads of a BLAS that wait for each other made a reply twenty times as slow on a busy machine."""
    shapes = {"tokens": (len(PIECES), 128), "places": (128, 128), "norm": (128,), "0.norm1": (128,)}
    shapes |= {"0.qkv": (128, 384), "0.out": (128, 128), "0.norm2": (128,), "0.up": (128, 512)}
    arrays = {name: np.ones(shape, np.float16) for name, shape in {**shapes, "0.down": (512, 128)}.items()}
    np.savez(tmp_path / "wide.npz", facts=json.dumps({"layers": 1, "heads": 4}), **arrays)
    command = [sys.executable, "-c", ONE_THREAD, str(tmp_path / "wide.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    whole, own = map(float, done.stdout.split())
    assert whole < 1.2 * own + 0.02


def test_weights_of_another_language_are_refused(tmp_path):
    with np.load(WEIGHTS) as saved:
        arrays = {name: saved[name] for name in saved.files}
    np.savez(tmp_path / "old.npz", **{**arrays, "tokens": arrays["tokens"][:-1]})
    with pytest.raises(Failure, match=f"got {len(PIECES) - 1} tokens"):
        answer(Tiny(weights=str(tmp_path / "old.npz")), call(HAND.domain.sample_prompt(HAND, [])))


def test_files_of_objects_are_not_executed(tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "executed",))

    np.savez(tmp_path / "trap.npz", facts=np.array([Trap()], dtype=object))
    with pytest.raises(Failure, match="cannot be read"):
        answer(Tiny(weights=str(tmp_path / "trap.npz")), call(HAND.domain.sample_prompt(HAND, [])))
    assert not (tmp_path / "executed").exists()


# The endpoint.


def test_a_reply_is_the_same_alone_and_among_others(model):
    prompts = [HAND.domain.propose_prompt(HAND, [], k) for k in range(1, 9)]
    calls = [
        call(prompt, sample_index=k, temperature=heat, logprobs=2, alternatives=2, max_tokens=20)
        for prompt in prompts
        for k, heat in enumerate((0.0, 0.7, None))
    ]
    together = answer(model, *calls, *calls)
    assert together[: len(calls)] == together[len(calls) :]
    assert [answer(model, one)[0] for one in calls[::3]] == together[: len(calls) : 3]
    assert len({reply.text for reply in together}) > 8


def test_samples_and_seeds_differ(model):
    prompt = HAND.domain.sample_prompt(HAND, [])
    plain = [call(prompt, sample_index=k, max_tokens=30) for k in range(8)]
    seeded = [call(prompt, seed=5, sample_index=k, max_tokens=30) for k in range(8)]
    texts = [reply.text for reply in answer(model, *plain, *seeded)]
    assert len(set(texts)) > 12
    assert answer(model, call(prompt, seed=6, sample_index=2, max_tokens=30))[0].text == texts[8 + 3]
    greedy = [call(prompt, sample_index=k, temperature=0.0, max_tokens=30) for k in range(3)]
    assert len({reply.text for reply in answer(model, *greedy)}) == 1


def test_a_narrow_top_p_is_greedy(model):
    prompt = HAND.domain.answer_prompt(HAND, True)
    greedy = call(prompt, temperature=0.0, max_tokens=30)
    narrow = call(prompt, temperature=2.0, options={"top_p": 1e-9}, max_tokens=30)
    wide = call(prompt, temperature=2.0, options={"top_p": 1.0}, max_tokens=30)
    one, same, other = (reply.text for reply in answer(model, greedy, narrow, wide))
    assert one == same != other


def test_log_probabilities_are_those_of_the_network(model):
    (reply,) = answer(
        model, call(HAND.domain.judge_prompt(HAND, [FIRST[HAND.question]]), logprobs=5, max_tokens=6)
    )
    tokens = encode_prompt("J 24:5 6 6>")
    known = {piece: k for k, piece in reversed([*enumerate(PIECES)])}
    assert reply.output_tokens == len(reply.logprobs) > 0
    assert reply.text == "".join(one.token for one in reply.logprobs)
    for one in reply.logprobs:
        logits = expected_logits(WEIGHTS, tokens)
        unwritten = [k for k, piece in enumerate(PIECES) if piece in ("", *"PVWJXYBARSDE:>|")]
        logits[unwritten] = -np.inf
        assert len(one.top) == 5
        logprobs = logits - np.log(np.exp(logits).sum())
        places = [k for k, piece in enumerate(PIECES) if piece == one.token]
        assert min(abs(logprobs[k] - one.logprob) for k in places) < 1e-3
        assert max(one.top.values()) == pytest.approx(logprobs.max(), abs=1e-3)
        tokens.append(places[0] if len(places) == 1 else known[one.token])
        if len(places) > 1:  # two tokens with one text: the next context is not known from the text
            break


def test_a_reply_ends_at_a_stop_text_or_a_number_of_tokens(model):
    prompt = HAND.domain.answer_prompt(HAND, True)
    (whole,) = answer(model, call(prompt, temperature=0.0, max_tokens=12))
    assert (whole.output_tokens, whole.finish_reason, whole.ended) == (12, "length", False)
    stop = whole.text[3:5]
    (cut,) = answer(model, call(prompt, temperature=0.0, max_tokens=12, stop=(stop,), logprobs=1))
    assert cut.text == whole.text.partition(stop)[0]
    assert (cut.finish_reason, cut.ended) == ("stop", False)
    (endless,) = answer(model, call(prompt, temperature=0.0))
    assert endless.input_tokens + endless.output_tokens <= 128


def test_a_reply_continues_its_beginning(model):
    prompt = HAND.domain.answer_prompt(HAND, True)
    (whole,) = answer(model, call(prompt, temperature=0.0, max_tokens=12))
    begun = "10 - 4 = 6\n"
    (rest,) = answer(model, call(prompt, begun, temperature=0.0, max_tokens=12))
    assert rest.input_tokens == whole.input_tokens + len(encode_reply(begun))
    with pytest.raises(Failure, match="outside the language"):
        answer(model, call(prompt, "Let me think. "))


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([("user", "Hello")], "not understood"),
        ([("system", "Be brief."), ("user", HAND.domain.sample_prompt(HAND, []))], "got system, user"),
        (
            [("user", HAND.domain.answer_prompt(HAND, True)), ("assistant", "1 + 1 = 2\n" * 21)],
            "context window",
        ),
    ],
)
def test_what_it_cannot_answer_is_an_error(model, messages, error):
    given = Call("0", "x", tuple(Message(*one) for one in messages))
    with pytest.raises(Failure, match=error):
        answer(model, given)


def test_the_text_is_streamed(model):
    class Watching(NullObserver):
        watched = True

        def __init__(self):
            self.seen = []

        def partial(self, text):
            self.seen.append(text)

    watching = Watching()
    asked = call(
        HAND.domain.propose_prompt(HAND, [], 5), temperature=0.0, max_tokens=10, options={"top_k": 3}
    )
    (reply,) = wait(model.answer([asked], watching))
    assert len(watching.seen) > 5
    assert all(reply.text.startswith(text) for text in watching.seen)


@pytest.mark.slow
def test_a_search_runs_and_replays(model, tmp_path):
    lab = tl.Lab(model, runs=tmp_path)
    run = wait(lab.run(tl.TreeOfThoughts(), HAND))
    assert run.usage.calls == 3
    assert not [one for one in run.events if isinstance(one, Reply) and (one.error or one.simulated)]
    again = wait(tl.Lab(model, runs=None, mode="off").run(tl.TreeOfThoughts(), HAND))
    assert again.events == run.events
    refused = wait(lab.run(tl.ChainOfThought(), tl.general("What is 2 + 2?")))
    assert "It answers the prompts" in str(refused.events)


def test_five_checkpoints_are_in_the_package():
    files = [_SHIPPED / f"{k}.npz" for k in range(1, 6)]
    assert all(file.stat().st_size <= 2_000_000 for file in files)
    assert sum(file.stat().st_size for file in files) <= 10_000_000
    cards = json.loads((_SHIPPED / "card.json").read_text())
    steps = [Network(file).facts["step"] for file in files]
    assert steps == [cards[file.stem]["step"] for file in files] == sorted(set(steps))
    first, last = tl.Lab("tiny/numbers@1", runs=None).model, tl.Lab("tiny/numbers@5", runs=None).model
    assert (
        first.identity()["sha256"]
        != last.identity()["sha256"]
        == Tiny(weights="numbers").identity()["sha256"]
    )
    with pytest.raises(ValueError, match=r"got 'number'. Did you mean 'numbers'\?"):
        tl.Lab("tiny/number")
    with pytest.raises(ValueError, match=r"one of numbers, numbers@1, .*numbers@5, or the path"):
        tl.Lab("tiny/numbers@6")


def test_a_name_without_weights_is_refused():
    with pytest.raises(ValueError, match=r"the path of an .npz file: got 'words'"):
        Tiny(weights="words")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:More than 5%")  # random weights write nothing that can be read
def test_each_view_says_what_it_is(model, tmp_path):
    words = "real model of a small formal language"
    lab = tl.Lab(model, runs=None, mode="off")
    sweep = lab.sweep_sync([tl.ChainOfThought(), tl.SelfConsistency(attempts=2)], [HAND])
    run = next(sweep.runs())
    assert not run.simulated
    tl.figures.plot_tree(run).write_json(tmp_path / "figure")
    for name, write in {
        "run.html": run.save_html,
        "sweep.html": sweep.save_html,
        "report.html": lambda path: report_html(list(sweep.runs()), path),
        "tree.svg": run.save_figure,
    }.items():
        write(tmp_path / name)
    shown = {path.name: path.read_text() for path in tmp_path.iterdir()}
    shown |= {"repr": repr(run), "html": run._repr_html_(), "table": repr(sweep)}
    for plot, table in {
        tl.figures.plot_tree: run.graph(),
        tl.figures.plot_timeline: run,
        tl.figures.plot_pareto: sweep,
        tl.figures.plot_sweep: tl.stats.anytime_performance(sweep, [1]),
        tl.figures.plot_scaling: tl.stats.pass_at_k(sweep),
    }.items():
        shown[f"{plot.__name__} {type(table).__name__}"] = plot(table).to_json()
    shown["tree.svg"] = " ".join(re.findall(r">([^<]+)<", shown["tree.svg"]))  # lines are wrapped
    assert [name for name, text in shown.items() if words not in text] == []


def test_the_label_is_that_of_the_model_and_not_of_a_name_like_its_own():
    async def served(call):
        return tl.Reply("Answer: 26", model="tiny/numbers")

    run = tl.Lab(served, runs=None).run_sync(tl.ChainOfThought(), tl.general("Two times 13?"))
    assert run.answer == "26"
    assert run.model_note == ""
    lab = tl.Lab(served, roles={"answer": "tiny/numbers"}, runs=None, mode="off")
    assert "small formal language" in lab.run_sync(tl.ChainOfThought(), HAND).model_note
