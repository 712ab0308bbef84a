"""Runs from live objects of other packages: the states of treequest, and the results of its_hub.

The packages are not imported: an object is read by its attributes.

References:
    github.com/SakanaAI/treequest; github.com/Red-Hat-AI-Innovation-Team/its_hub.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

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

    The run has no end, because treequest does not say which node is the answer. The actions and the times of
    its trials are kept, the former in the note `imported.actions`. A state holds no calls.

    Args:
        state: The state of any algorithm, or its `tree`.
        question: The question.
        text: Returns the text of the state of a node.
        score_range: The lowest and the highest score.

    Raises:
        TypeError: If `state` is no state of treequest.
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
    answer. Those of all iterations of particle Gibbs are kept. The score of a particle is the logistic
    function of its log weight, which its_hub computed from the score. Responses that were made of several
    steps have no call, since the steps are not in the result.

    Args:
        result: A result of any algorithm, with its responses (`return_response_only=False`).
        question: The question.
        score_range: The lowest and the highest score.

    Raises:
        TypeError: If `result` is no result of its_hub.
        ValueError: If a score is out of range.
    """
    if not hasattr(result, "the_one"):
        raise TypeError(
            f"result must be a result of its_hub: got {type(result).__name__}. "
            f"Pass return_response_only=False to the algorithm."
        )
    nodes, best = [LoggedNode(ROOT, None, question)], None
    counts: dict[str, Any] = {}
    approaches = getattr(result, "approach_results", None)
    for name, inner in [("", result)] if approaches is None else approaches.items():
        parent = ROOT
        if approaches is not None:
            parent = f"approach {len(counts)}"
            nodes.append(LoggedNode(parent, ROOT, name))
        for id, response, score, is_selected in _responses(inner):
            message = message_of(response)
            calls: list[LoggedCall] = []
            if not hasattr(inner, "steps_used") and not hasattr(inner, "steps_used_lst"):
                reply = Reply(message.content, tool_calls=message.tool_calls)
                calls.append(LoggedCall((), reply, "sample"))
            own = f"{parent} {id}"
            text = shown(message.content, message.tool_calls)
            nodes.append(LoggedNode(own, parent, text, score, calls=calls))
            if is_selected and (approaches is None or name == result.best_approach):
                best = own
        votes = getattr(inner, "response_counts", None)
        counts[name or "responses"] = {str(answer): count for answer, count in (votes or {}).items()}
    usage = getattr(result, "usage", None)
    notes = {
        "imported.votes": {name: held for name, held in counts.items() if held},
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


def _responses(result: Any) -> Iterator[tuple[str, Any, float | None, bool]]:
    """Yield each response: a name, the message, its score, and whether it was selected."""
    rounds: Sequence[Any] = getattr(result, "responses_lst", None) or [result.responses]
    weights = getattr(result, "log_weights_lst", None)
    if weights is not None and not hasattr(result, "responses_lst"):
        weights = [weights]
    scores = getattr(result, "scores", None)
    for k, responses in enumerate(rounds):
        for number, response in enumerate(responses):
            score = None if scores is None else float(scores[number])
            if weights is not None:
                score = _logistic(float(weights[k][number]))
            last = k == len(rounds) - 1
            yield f"{k}.{number}", response, score, last and number == result.selected_index


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
