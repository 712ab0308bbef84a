"""What each traversal would have needed on the recorded Game of 24 replies.

    python benchmarks/published_efficiency.py DIR

Over the puzzles that the published beam solved: the propose calls and the distinct value prompts
up to the first correct answer (its own evaluation included), against all that the published beam
spent on the same puzzles. An expansion that the record lacks yields nothing and is counted apart.
25 % of the propose calls is the floor: four proposals, one a level.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict

from published import RecordedModel, recorded, standing

import tot_lab as tl
from tot_lab.core.calls import Call, Reply
from tot_lab.core.records import Scored, Thought

TRAVERSALS = ("beam", "depth_first", "best_first", "mcts")


def settings(traversal: str) -> tl.TreeOfThoughts:
    """The paper's settings under another traversal; only the beam drops any thought."""
    width = 5 if traversal == "beam" else None
    made = tl.presets.game24().settings() | {"traversal": traversal, "beam_width": width}
    del made["kind"]
    return tl.TreeOfThoughts(**made)


def published_cost(model: RecordedModel) -> tuple[int, int]:
    """Propose calls and distinct value prompts of the published beam on one puzzle."""
    steps = model.puzzle["steps"]
    prompts = {standing(model.question, y.split("\n")[:-1]) for step in steps for y in step["new_ys"]}
    return sum(len(step["ys"]) for step in steps), len(prompts)


def cost_to_first(run: tl.Run, task: tl.Task) -> tuple[int, int, int] | None:
    """Propose calls, distinct value prompts, and those of the propose calls that the record does
    not answer, up to the first correct answer; None without one."""
    proposals, prompts, lacking, found = 0, set(), 0, None
    for event in run.events:
        if isinstance(event, Call) and event.kind == "propose":
            proposals += 1
        elif isinstance(event, Reply) and not event.text:
            lacking += 1
        elif isinstance(event, Call):
            prompts.add(event.prompt)
        elif isinstance(event, Thought) and event.parent is not None and found is None:
            answer = task.domain.answer(task, run.tree.texts(event.id))
            found = event.id if answer is not None and task.grade(answer) == 1.0 else None
        elif isinstance(event, Scored) and event.id == found:
            break
    return (proposals, len(prompts), lacking) if found is not None else None


async def main(folder: str) -> None:
    spent = [0, 0]
    needed: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    solved = 0
    for task, model in recorded(folder):
        kept = [candidate.split("\n")[:-1] for candidate in model.puzzle["steps"][-1]["select_new_ys"]]
        answers = [task.domain.answer(task, path) for path in kept]
        if not any(answer is not None and task.grade(answer) == 1.0 for answer in answers):
            continue
        solved += 1
        for k, cost in enumerate(published_cost(model)):
            spent[k] += cost
        for traversal in TRAVERSALS:
            run = await tl.Lab(model, runs=None).run(settings(traversal), task)
            found = cost_to_first(run, task)
            if found is not None:
                row = zip(needed[traversal], (1, *found), strict=True)
                needed[traversal] = [have + more for have, more in row]
    print(f"published beam: {solved} puzzles solved with {spent[0]} propose calls, {spent[1]} value prompts")
    print(f"{'until the first correct answer':32}{'solved':>7}{'propose':>15}{'value':>15}{'lacking':>10}")
    for traversal, (right, proposals, prompts, lacking) in needed.items():
        print(
            f"{traversal:32}{right:>4}/{solved:<2}{proposals:>7} ({proposals / spent[0]:4.0%}) "
            f"{prompts:>7} ({prompts / spent[1]:4.0%}) {lacking:>9}"
        )
    print("target, best_first: all solved, propose <= 36 %, value <= 40 %")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1]))
