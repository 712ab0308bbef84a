"""Prompt texts of Deep Think's three stages.

All wording is here, so that `deep_think.py` shows the algorithm. Each prompt begins with the task in its
domain's words, and `ask_json` adds the format of the JSON after these texts.
"""

BRANCH = (
    "Do not solve it yet. Find {count} different approaches to it. They must differ in method, in "
    "perspective and in level of abstraction: no two may be variations of one idea. Give each a short name "
    "of its own, its strategy (how it goes about the task), its rationale (why it may work) and its risks."
)

ANEW = (
    "Each approach must lead beyond what was found: it mends a weakness, joins what was best, or takes a way "
    "that nobody took."
)
"""A further request of BRANCH, from the second iteration on."""

DEVELOP = (
    "Solve it by the approach that stands at the end, and by no other. Go through four stages. Plan: the "
    "steps that this approach takes. Execute: carry each step out in full. Observe: hold what came of it "
    "against everything that the task asks for. Reflect: what holds, what does not, and how sure you are, "
    "from 0 to 10. The solution stands by itself: it is all that whoever set the task will read, in the form "
    "that the task asks for."
)
"""The approach stands at the end of the prompt, so that all branches of an iteration share a prefix."""

CONVERGE = (
    "It was solved in {count} ways:\n\n{solutions}\n\n"
    "Judge each of them, by its name: correctness, completeness, elegance and practicality from 0 to 10, and "
    "a verdict in one line. Reflect on all: patterns, mistakes, what none of them saw, insights. Then make "
    "one solution out of the best of them, which answers every weakness that you found. It stands by itself, "
    "in the form that the task asks for; say how it answers the weaknesses, and which ideas were taken from "
    "which approach. Last, your confidence in it from 0 to 10, whether another iteration would make it "
    "better, and what that should look at first."
)
