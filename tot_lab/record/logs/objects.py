"""Runs from live objects of other packages: the states of treequest, and the results of its_hub.

The packages are not imported: an object is read by its attributes.

References:
    github.com/SakanaAI/treequest; github.com/Red-Hat-AI-Innovation-Team/its_hub.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tot_lab.core.calls import Reply
from tot_lab.record.logs.common import ROOT, imported_run, message_of, seconds, shown
from tot_lab.record.nodes import LoggedCall, LoggedEnd, LoggedNode
from tot_lab.record.run import Run


def from_treequest(
    state: Any,
    question: str = "",
    *,
    text: Callable[[Any], str] = str,
    score_range: tuple[float, float] = (0.0, 1.0),
) -> Run:
    """Make a run of the state of a search of treequest.

        algo = treequest.ABMCTSA()
        state = algo.init_tree()
        ...
        run = tl.records.from_treequest(state, "What is 2 + 3?")

    The run has no end, because treequest does not say which node is the answer. The times of the trials are
    kept, and their actions are in the note `imported.actions`. A state holds no calls.

    Args:
        state: The state of any algorithm, or its `tree`.
        question: The question.
        text: Function that returns the text of a node from the state of the node.
        score_range: The lowest and the highest score.

    Raises:
        TypeError: If `state` is not a state of treequest.
        ValueError: If a score is out of range, or `text` does not return a text.
    """
    tree = getattr(state, "tree", state)
    if not hasattr(getattr(tree, "root", None), "expand_idx"):
        raise TypeError(f"state must be a state of treequest: got {type(state).__name__}.")
    store = getattr(state, "trial_store", None)
    trials = getattr(store, "finished_trials", {})
    nodes: list[LoggedNode] = []
    actions: dict[str, str] = {}
    waiting: list[tuple[Any, str | None]] = [(tree.root, None)]
    while waiting:
        node, parent = waiting.pop()
        id = ROOT if parent is None else str(node.expand_idx)
        waiting += [(child, id) for child in node.children]
        if parent is None:
            nodes.append(LoggedNode(ROOT, None, question))
            continue
        trial = trials.get(node.trial_id)
        if trial is not None:
            actions[id] = trial.action
        held = text(node.state)
        if not isinstance(held, str):
            raise ValueError(f"text must return a text: got {type(held).__name__}.")
        time = None if trial is None else seconds(trial.completed_at, "completed_at")
        nodes.append(LoggedNode(id, parent, held, float(node.score), time=time))
    nodes[1:] = sorted(nodes[1:], key=lambda node: int(node.id))
    times = [node.time for node in nodes[1:] if node.time is not None]
    if len(times) == len(nodes) - 1 and times:
        nodes[0].time = min(times)
    return imported_run(
        nodes,
        name=f"treequest, {type(state).__name__}",
        question=question,
        place="treequest",
        end=LoggedEnd(notes={"imported.actions": actions}, complete=False),
        started=nodes[0].time,
        score_range=score_range,
    )


def from_its_hub(result: Any, question: str = "", *, score_range: tuple[float, float] = (0.0, 1.0)) -> Run:
    """Make a run of a result of its_hub.

        result = its_hub.BestOfN(reward).infer(lm, question, budget=8, return_response_only=False)
        run = tl.records.from_its_hub(result, question)

    Each response is a child of the question, or of the approach of a plan, and the selected one is the
    answer.

    The result of a beam search or a particle method holds the last responses, their scores and their numbers
    of steps, which are in the note `imported.steps`. It does not hold the steps, their scores, or the
    responses that were dropped during the search. So each response is one node without a call, and those of
    the last iteration are kept (`run.kept_answers`). Beam search returns each response of the beam several
    times. Particle Gibbs returns the responses of all iterations; a reference particle occurs in each
    iteration that it was carried into. The score of a particle is the logistic function of its log weight,
    which its_hub computed from the reward.

    Args:
        result: A result of any algorithm, with its responses (`return_response_only=False`).
        question: The question.
        score_range: The lowest and the highest score.

    Raises:
        TypeError: If `result` is not a result of its_hub.
        ValueError: If a score is out of range.
    """
    if not hasattr(result, "the_one"):
        raise TypeError(
            f"result must be a result of its_hub: got {type(result).__name__}. "
            f"Pass return_response_only=False to the algorithm."
        )
    nodes, best = [LoggedNode(ROOT, None, question)], None
    votes: dict[str, dict[str, Any]] = {}
    steps: dict[str, int] = {}
    approaches = getattr(result, "approach_results", None)
    for number, (name, inner) in enumerate([("", result)] if approaches is None else approaches.items()):
        parent = ROOT
        if approaches is not None:
            parent = f"approach {number}"
            nodes.append(LoggedNode(parent, ROOT, name))
        is_best = approaches is None or name == result.best_approach
        for response in _responses(inner):
            node = _node(response, parent, is_best)
            nodes.append(node)
            if response.steps is not None:
                steps[node.id] = response.steps
            if response.is_selected and is_best:
                best = node.id
        counts = getattr(inner, "response_counts", None) or {}
        votes[name or "responses"] = {str(answer): count for answer, count in counts.items()}
    usage = getattr(result, "usage", None)
    notes: dict[str, Mapping[str, Any]] = {
        "imported.votes": {name: held for name, held in votes.items() if held},
        "imported.steps": steps,
        "imported.usage": {} if usage is None else {name: getattr(usage, name) for name in _USAGE},
    }
    answer = next((node.text for node in nodes if node.id == best), None)
    return imported_run(
        nodes,
        name=f"its_hub, {type(result).__name__.removesuffix('Result')}",
        question=question,
        place="its_hub",
        end=LoggedEnd(answer, [] if best is None else [best], notes=notes, complete=False),
        score_range=score_range,
    )


_USAGE = ("prompt_tokens", "completion_tokens", "num_calls")


class _Response(NamedTuple):
    """A response in a result.

    Attributes:
        steps: The number of its steps. `None` if it was made by one call.
        is_last: Whether it is from the last iteration of particle Gibbs. True for all other algorithms.
    """

    id: str
    message: Any
    score: float | None
    steps: int | None
    is_last: bool
    is_selected: bool


def _responses(result: Any) -> Iterator[_Response]:
    is_nested = hasattr(result, "responses_lst")  # a list for each iteration of particle Gibbs

    def lists(*names: str) -> Any:
        found = next((getattr(result, name) for name in names if hasattr(result, name)), None)
        return found if found is None or is_nested else [found]

    rounds: Sequence[Sequence[Any]] = lists("responses_lst", "responses")
    scores, weights = lists("scores"), lists("log_weights_lst")
    steps = lists("steps_used_lst", "steps_used")
    for k, responses in enumerate(rounds):
        is_last = k == len(rounds) - 1
        for number, message in enumerate(responses):
            score = None if scores is None else float(scores[k][number])
            if weights is not None:
                score = _logistic(float(weights[k][number]))
            count = None if steps is None else int(steps[k][number])
            is_selected = is_last and number == result.selected_index
            yield _Response(f"{k}.{number}", message, score, count, is_last, is_selected)


def _node(response: _Response, parent: str, is_best: bool) -> LoggedNode:
    message = message_of(response.message)
    text = shown(message.content, message.tool_calls)
    node = LoggedNode(f"{parent} {response.id}", parent, text, response.score)
    if response.steps is None:
        node.calls = [LoggedCall((), Reply(message.content, tool_calls=message.tool_calls), "sample")]
    elif response.is_last and is_best:
        node.state = "kept"
    return node


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
