"""What each search would have needed on the recorded Game of 24 replies.

    python benchmarks/published_efficiency.py DIR

Over the puzzles that the published beam solved: the propose calls and the distinct value prompts
up to the first correct answer (its own evaluation included), against all that the published beam
spent on the same puzzles. An expansion that the record lacks yields nothing and is counted apart.
25 % of the propose calls is the floor: four proposals, one a level.
"""

from __future__ import annotations

import sys

from published_game24 import frontiers, recorded, right

import tot_lab as tl
from tot_lab.core.calls import Call, Reply
from tot_lab.core.records import Scored, Thought

SEARCHES = (tl.BeamSearch(width=5), tl.DepthFirst(), tl.BestFirst(), tl.MCTS())


def settings(search: tl.searches.Search) -> tl.TreeOfThoughts:
    """The paper's settings under another search; only the beam drops any thought."""
    return tl.presets.game24(search=search)


def solved(log: tl.Run) -> bool:
    """Whether any of the thoughts that the published beam ended with is right."""
    return any(right(log, path) for path in list(frontiers(log))[-1])


def published_cost(log: tl.Run) -> tuple[int, int]:
    """Propose calls and distinct value prompts of the published beam on one puzzle."""
    task = log.task
    assert task is not None
    judged = [node.id for node in log.tree if node.parent is not None]
    prompts = {task.domain.value_prompt(task, log.steps(id)) for id in judged}
    return sum(isinstance(event, Call) for event in log.events), len(prompts)


def cost_to_first(run: tl.Run) -> tuple[int, int, int] | None:
    """Propose calls, distinct value prompts, and those of the propose calls that the record does
    not answer, up to the first correct answer; None without one."""
    proposals, prompts, lacking, found = 0, set[str](), 0, ""
    for event in run.events:
        if isinstance(event, Call) and event.purpose == "propose":
            proposals += 1
        elif isinstance(event, Reply) and event.error:
            lacking += 1
        elif isinstance(event, Call):
            prompts.add(event.prompt)
        elif isinstance(event, Thought) and event.parent is not None and not found:
            found = event.id if right(run, run.tree.texts(event.id)) else ""
        elif isinstance(event, Scored) and event.id == found:
            break
    return (proposals, len(prompts), lacking) if found else None


def main(folder: str) -> None:
    logs = [log for log in recorded(folder) if solved(log)]
    spent = [sum(amounts) for amounts in zip(*map(published_cost, logs), strict=True)]
    print(
        f"published beam: {len(logs)} puzzles solved with {spent[0]} propose calls, {spent[1]} value prompts"
    )
    print(f"{'until the first correct answer':32}{'solved':>7}{'propose':>15}{'value':>15}{'lacking':>10}")
    for search in SEARCHES:
        made = tl.counterfactual(logs, settings(search))
        costs = [cost for again in made if (cost := cost_to_first(again.run)) is not None]
        proposals, prompts, lacking = map(sum, zip(*costs, strict=True))
        print(
            f"{search.kind:32}{len(costs):>4}/{len(logs):<2}{proposals:>7} ({proposals / spent[0]:4.0%}) "
            f"{prompts:>7} ({prompts / spent[1]:4.0%}) {lacking:>9}"
        )
    print("target, best_first: all solved, propose <= 36 %, value <= 40 %")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
