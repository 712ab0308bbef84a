"""Prompt texts for planning, refining and reflecting.

All wording is here, so that `plan_execute.py` shows the algorithm. Each prompt begins with the task in its
domain's words, and ends with the format of the steps or of the verdict.
"""

PLAN = "Do not answer yet. Write a plan for it: steps that lead to the answer, as few as will do."

STEPS = """\
Each step has one of three types.
tool_call: calls one tool, named in toolName, with the arguments in toolArgs; no model sees it. Write one
step for each thing that a tool is asked: four cities to look up are four steps.
analysis: one piece of thinking in words, as its instruction says.
composite: a small problem of its own, as its instruction says, with the tools named in toolHints and no
others.
dependsOn names the steps whose results a step needs. {{from_step:s1}} in toolArgs or in an instruction
stands for the whole result of s1, {{from_step:s1:summary}} for its first 500 characters, and
{{from_step:s1:item:2}} for the second item that it lists."""

REQUIREMENTS = "TOOL CALL REQUIREMENTS"
"""Heading of the list of tools that a plan must call, each with its number of calls."""

FURTHER_CALLS = (
    "Some tools must be called more often than the plan does. Write these further steps of the type "
    "tool_call and no others, each with arguments of its own. They are numbered on from the last one above, "
    "and can depend on those."
)
"""Text above the list of tools that a plan calls too rarely, each with its number of missing calls."""

ORDER = {
    "linear": "Steps are carried out in turn, and named s1, s2, … by their place. Write {most} at most.",
    "dag": (
        "Steps that do not depend on each other are carried out at once. They are named s1, s2, … by their "
        "place. Write {most} at most."
    ),
}
"""How steps are ordered and named, by plan mode."""

PATCH = {
    "in-place": (
        "Some steps failed. Write anew each that failed, and of the pending and skipped ones those that must "
        "change: the whole step, with its `id`. Completed steps stay as they are."
    ),
    "replan-remaining": (
        "Some steps failed. Write other steps in place of all that are not completed. They are numbered on "
        "from the last one above. Completed steps stay, and can be depended on."
    ),
}
"""The request for a patch, by patch strategy."""

AUGMENT = (
    "All steps are done, and the goal is not reached. Write the further steps that it takes. They are "
    "numbered on from the last one above, and can depend on those."
)

HOW = {
    "shallow": "Is the goal reached? Judge in brief.",
    "deep": (
        "Is the goal reached? Hold each result against the task: is it right, does it follow from what it "
        "was given, do two of them contradict each other, is something missing?"
    ),
}
"""The request for a reflection, by reflection depth."""

VERDICT = (
    "The first line of your reply is `SATISFIED: ` and why, or `UNSATISFIED: ` and what is missing. After "
    "it, give the answer as far as the results carry it, in the form that the task asks for."
)
