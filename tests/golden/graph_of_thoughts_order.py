"""What the published package `graph-of-thoughts` 0.0.2 does with a list of operations, step by step.

`test_graph_of_thoughts.py` runs this file in a throwaway environment that has the package, and compares the
output with `graph_of_thoughts_order.json`. Reads plans from stdin, writes the steps to stdout. tot_lab is not
needed.
"""

import json
import sys
from random import Random
from unittest.mock import MagicMock

sys.modules |= dict.fromkeys(("backoff", "openai", "torch", "transformers"), MagicMock())  # not used

from graph_of_thoughts import controller, operations  # noqa: E402


class Script:
    """Language model, prompter and parser in one. Thoughts are numbered in the order of their creation."""

    def __init__(self, scores):
        self.scores, self.made, self.steps = scores, 0, []

    def query(self, prompt, num_responses=1):
        self.steps.append([*prompt, num_responses])
        return num_responses

    def get_response_texts(self, count):
        self.made += count
        return [str(number) for number in range(self.made - count, self.made)]

    def generate_prompt(self, num_branches, **state):
        return "generate", [state["name"]]

    def aggregation_prompt(self, state_dicts):
        return "aggregate", [state["name"] for state in state_dicts]

    def improve_prompt(self, **state):
        return "refine", [state["name"]]

    def parse_generate_answer(self, state, texts):
        return [{"name": text} for text in texts]

    parse_aggregation_answer = parse_generate_answer

    def parse_improve_answer(self, state, texts):
        return {"name": texts[0]}

    def score(self, state):
        return self.scores[int(state["name"])]


class Graph:
    """Builds a graph of operations whose last operations each hold a known number of thoughts."""

    def __init__(self, script):
        self.script, self.operations = script, operations.GraphOfOperations()
        start = operations.Selector(lambda thoughts: thoughts)
        self.operations.add_operation(start)
        self.ends = [(start, 1)]

    def after(self, operation, *before):
        for one in before:
            operation.add_predecessor(one)
        self.operations.add_operation(operation)
        return operation

    def split(self, size):
        """One selector for each `size` thoughts of all ends."""
        every = self.after(operations.Selector(lambda thoughts: thoughts), *(end for end, _ in self.ends))
        total = sum(count for _, count in self.ends)
        size = size or total
        ends = []
        for start in range(0, total, size):
            part = operations.Selector(lambda thoughts, start=start: thoughts[start : start + size])
            ends.append((self.after(part, every), min(size, total - start)))
        return ends

    def scored(self, operation, *before):
        return self.after(
            operations.Score(scoring_function=self.script.score), self.after(operation, *before)
        )

    def apply(self, plan):
        count = plan.get("count", 1)
        if plan["do"] == "generate":
            ends = self.split(1)
            self.ends = [(self.scored(operations.Generate(1, count), end), count) for end, _ in ends]
        elif plan["do"] == "aggregate":
            ends = self.split(plan.get("size"))
            self.ends = [(self.scored(operations.Aggregate(count), end), count) for end, _ in ends]
        elif plan["do"] == "refine":
            for end, size in self.split(1):
                self.ends += [(self.scored(operations.Improve(), end), size)]
        else:
            groups = [[end] for end in self.ends] if plan.get("each") else [self.ends]
            self.ends = [
                (
                    self.after(operations.KeepBestN(count), *(end for end, _ in group)),
                    min(count, sum(size for _, size in group)),
                )
                for group in groups
            ]


def steps_of(plan):
    random = Random(plan["seed"])
    script = Script([random.randrange(plan["levels"]) / plan["levels"] for _ in range(500)])
    graph = Graph(script)
    for operation in plan["operations"]:
        graph.apply(operation)
    run = controller.Controller(script, graph.operations, script, script, {"name": "root", "score": None})
    run.run()
    left = [thought.state["name"] for thoughts in run.get_final_thoughts() for thought in thoughts]
    return {"steps": script.steps, "left": left}


if __name__ == "__main__":
    json.dump([steps_of(plan) for plan in json.load(sys.stdin)], sys.stdout)
