"""A simulated player of the tasks under hard constraints, for any strategy, including Deep Think.

It reads the rules and the drafts only from the text of the prompt, and satisfies a rule with probability
`skill`. To violate a rule, it edits the reference of the task that has these rules. A rule that the prompt
repeats, for example in a critique or an approach, gets two tries. A prompt of the domain is recognised by its
closing words, a prompt of a strategy by the purpose of the call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import eq
from random import Random
from typing import Any

from tot_lab.domains.constrained import reference_of
from tot_lab.domains.constrained.constraints import Rule, check_rules, rules_in, strip_answer
from tot_lab.domains.player import OPEN_STEP, STRATEGY_FORMS, Player, Responder, candidates_in
from tot_lab.models.simulated import JUDGING, Probability

_FORMS = (
    *JUDGING,
    ("value", re.compile(r"score: K/N")),
    ("propose", re.compile(r"Write (\d{1,4}) different drafts")),
    ("sample", re.compile(r"Write the draft alone")),
    ("aloud", re.compile(r"below it the answer alone")),
    ("answer", re.compile(r"the answer is the whole text of your reply")),
)
_DRAFT = re.compile(r"<(draft|solution|answer)>\n|^ {1,9}result: ", re.M)
_AFTER_RESULT = re.compile(r"\ns\d{1,4} |\n\n|\Z")
_APPROACH = re.compile(r"<approach>\nName: ([^\n]*)\n(.*?)\n</approach>", re.S)
_CANDIDATE = re.compile(r"^Candidate \d+$", re.M)
_STEP = {
    "title": "write the answer",
    "type": "analysis",
    "instruction": "Write an answer that keeps all rules.",
}
_EDITS = 600  # number of edits tried per answer
_RESTART = 100  # number of edits after which the search restarts from the reference
_BETWEEN = (" ", " ", " ", ", ", ". ", "? ", "\n")
_COUNT = re.compile(r"Find (\d{1,2}) different approaches")


class _Responder(Responder["SimConstrained"]):
    """Writes and judges drafts under the rules in the prompt."""

    forms = _FORMS
    every_paragraph = True
    purposes = STRATEGY_FORMS | {"branch", "develop", "converge"}
    random_ties = True

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        return rules_in(self.text)

    @cached_property
    def repeated(self) -> list[bool]:
        """For each rule, whether it also occurs outside the list of rules."""
        return [self.text.count(rule.text) > 1 for rule in self.rules]

    @cached_property
    def drafts(self) -> list[str]:
        """The drafts in the prompt."""
        return [strip_answer(draft) for draft in _drafts(self.text)]

    @property
    def last(self) -> str:
        """The last draft in the prompt."""
        return self.drafts[-1] if self.drafts else ""

    @cached_property
    def candidates(self) -> list[str]:
        """The last draft of each candidate."""
        return [strip_answer(["", *_drafts(part)][-1]) for part in candidates_in(self.text)]

    def understands(self) -> bool:
        return reference_of(self.rules) is not None

    # Writing.

    def draft(self) -> str:
        """Return a first draft, or an improvement of the last one."""
        return self.improve(self.drafts[-1:])[0]

    sample = answer = analysis = draft

    def propose(self) -> str:
        """Return different drafts."""
        return "\n\n".join(f"Draft {k}:\n{self.draft()}" for k in range(1, self.count + 1))

    def aloud(self) -> str:
        """Return a draft after some reasoning."""
        return f"I went through the {len(self.rules)} rules.\nAnswer:\n{self.draft()}"

    def improve(self, drafts: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
        """Make one answer from `drafts`, based on the draft that the player believes to be best.

        Returns:
            The answer, and index pairs (rule, draft) for each rule whose outcome was adopted from another
            draft.
        """
        tries = [self.succeeds(twice=repeated) for repeated in self.repeated]
        if not drafts:
            return self._make(tries), []
        seen = [self.believed(draft) for draft in drafts]
        at = max(range(len(drafts)), key=lambda k: sum(seen[k]))
        kept = [check_rules(self.rules, draft) for draft in drafts]
        wanted, taken = list(kept[at]), []
        for k in range(len(self.rules)):
            if seen[at][k] or kept[at][k]:
                continue
            other = next((n for n, ones in enumerate(seen) if ones[k]), None)
            if other is None:
                wanted[k] = tries[k]
            else:
                wanted[k] = kept[other][k]  # The belief about the other draft may be wrong.
                taken.append((k, other))
        if wanted == kept[at]:
            return drafts[at], []
        made = self._make(wanted)
        now = check_rules(self.rules, made)
        worse = sum(map(bool.__eq__, now, wanted)) < sum(map(bool.__eq__, kept[at], wanted))
        return (drafts[at], []) if worse else (made, taken)

    def _make(self, wanted: Sequence[bool]) -> str:
        reference = reference_of(self.rules)
        assert reference is not None
        return damaged(reference, self.rules, wanted, self.random)

    # Judging.

    def believed(self, draft: str) -> list[bool]:
        """Return whether the player believes that a draft satisfies each rule."""
        if self.random.random() < self.player.noise:
            return [self.random.random() < 0.5 for _ in self.rules]
        return [kept or not self.notices() for kept in check_rules(self.rules, draft)]

    def believes(self) -> bool:
        return all(self.believed(self.last))

    def scores(self) -> list[float]:
        """Return the share of rules that the player believes each candidate satisfies, 0–1."""
        return [sum(self.believed(draft)) / len(self.rules) for draft in self.candidates]

    def value(self) -> str:
        """Return a verdict on each rule, and the score."""
        seen = self.believed(self.last)
        lines = [f"- {'kept' if one else 'broken'}: {rule.text}" for rule, one in self._with_rules(seen)]
        return "\n".join([*lines, f"score: {sum(seen)}/{len(seen)}"])

    def _with_rules(self, seen: Sequence[bool]) -> list[tuple[Rule, bool]]:
        return list(zip(self.rules, seen, strict=True))

    def _broken(self, seen: Sequence[bool]) -> list[str]:
        return [rule.text for rule, kept in self._with_rules(seen) if not kept]

    # Deep Think.

    def branch(self) -> str:
        """Return approaches that begin with different rules. Rules that the prompt repeats come first."""
        count = _COUNT.search(self.text)
        order = sorted(range(len(self.rules)), key=lambda k: (not self.repeated[k], self.random.random()))
        branches = [
            {
                "name": f"Rule {k + 1} first" if n < len(order) else f"Rule {k + 1} first, again",
                "strategy": f"See to this rule first, and to the others after it: {self.rules[k].text}",
                "rationale": "What is hardest to keep leaves the least room.",
                "risks": "Another rule may be forgotten.",
            }
            for n, k in enumerate([*order, *order][: int(count[1]) if count else 3])
        ]
        return json.dumps({"branches": branches})

    def develop(self) -> str:
        """Return a solution by one approach, with a self-assessment."""
        solution = self.draft()
        seen = self.believed(solution)
        return json.dumps(
            {
                "plan": "First the rule of the approach, then the others in turn.",
                "execution": "Done in the solution.",
                "solution": solution,
                "observation": f"{sum(seen)} of {len(seen)} rules seem to be kept.",
                "reflection": "Nothing seems to be wrong." if all(seen) else "Not all rules are kept.",
                "confidence": round(10 * sum(seen) / len(seen), 1),
                "strengths": [rule.text for rule, kept in self._with_rules(seen) if kept],
                "weaknesses": self._broken(seen),
            }
        )

    def converge(self) -> str:
        """Return a verdict on each solution, and a synthesis of all."""
        shown = [(name, self._solution(rest)) for name, rest in _APPROACH.findall(self.text)]
        judged = [(name, self.believed(solution)) for name, solution in shown]
        made, taken = self.improve([solution for _, solution in shown])
        seen = self.believed(made)
        missed = [rule.text for k, rule in enumerate(self.rules) if not any(ones[k] for _, ones in judged)]
        return json.dumps(
            {
                "evaluations": [self._evaluation(name, ones) for name, ones in judged],
                "reflection": {
                    "patterns": [],
                    "mistakes": [f"{name}: {text}" for name, ones in judged for text in self._broken(ones)],
                    "missed": missed,
                    "insights": ["Rules that pull against each other have to be seen to together."],
                },
                "synthesis": {
                    "solution": made,
                    "reasoning": "It goes on from the best solution and mends what is broken there.",
                    "taken": [{"name": shown[n][0], "idea": self.rules[k].text} for k, n in taken],
                },
                "confidence": round(10 * sum(seen) / len(seen), 1),
                "should_continue": not all(seen),
                "next_focus": " ".join(self._broken(seen)),
            }
        )

    @staticmethod
    def _solution(text: str) -> str:
        return strip_answer(next(_drafts(text), ""))

    def _evaluation(self, name: str, seen: Sequence[bool]) -> dict[str, Any]:
        worth = round(10 * sum(seen) / len(seen), 1)
        verdict = "all rules are kept" if all(seen) else f"{len(seen) - sum(seen)} rules are broken"
        criteria = ("correctness", "completeness", "elegance", "practicality")
        return {"name": name, **dict.fromkeys(criteria, worth), "verdict": verdict}

    # The other strategies.

    def act(self) -> str:
        """Return an immediate answer, through the tool `final-answer` if the prompt names it."""
        answer = self.draft()
        if "final-answer" not in self.text:
            return f"Answer:\n{answer}"
        return json.dumps({"name": "final-answer", "arguments": {"answer": answer}})

    def critique(self) -> str:
        """Return SATISFIED, or UNSATISFIED with the rules that the player believes to be violated."""
        broken = self._broken(self.believed(self.last))
        if not broken:
            return "SATISFIED: I held it against each rule, and they are kept."
        return "\n".join(["UNSATISFIED: see to these rules:", *(f"- {text}" for text in broken)])

    def review(self) -> str:
        """Return a critique of the result of a plan, and the answer."""
        return f"{self.critique()}\nAnswer:\n{self.last or self.draft()}"

    def plan(self) -> str:
        """Return a plan with one step."""
        return json.dumps({"steps": [_STEP]})

    augment = plan

    def patch(self) -> str:
        """Return a plan with a step in place of each incomplete one."""
        return json.dumps({"steps": [{"id": id, **_STEP} for id in OPEN_STEP.findall(self.text)] or [_STEP]})

    def route(self) -> str:
        """Return the kind of the task, from which a router chooses a strategy."""
        right = "writing" if self.rules[0].family == "writing" else "steps"
        kinds = ("simple", "steps", "open", "writing")
        return json.dumps({"kind": right if self.succeeds() else self.random.choice(kinds)})

    def reflect(self) -> str:
        """Return a lesson that names a random rule."""
        return f"The rules have to be held together.\nNext: {self.random.choice(self.rules).text}"

    def synthesize(self) -> str:
        """Return the last draft."""
        return f"The last draft:\n{self.last}" if self.drafts else "There is no draft yet."


class SimConstrained(Player):
    """A simulated writer for the tasks of `constrained`."""

    kind = "sim/constrained"
    responder = _Responder
    garbled = ("", "\n", "   ", "\n\n")
    unknown = "I am a simulated player of tasks under constraints, and I do not understand this prompt."

    skill: Probability = 0.8
    """Probability that a draft satisfies a rule, 0–1.

    A violated rule is noticed with probability (1 + skill) / 2. If it is noticed, the next draft satisfies it
    with probability `skill`.
    """

    noise: Probability = 0.1
    """Probability that a judgement is random, 0–1."""

    garble: Probability = 0.0
    """Probability that a reply is empty, 0–1."""


def damaged(reference: str, rules: tuple[Rule, ...], wanted: Sequence[bool], random: Random) -> str:
    """Return an answer that satisfies the `wanted` rules and violates the others, as far as possible.

    The answer is the reference after random edits. An edit is accepted unless fewer rules have the wanted
    outcome after it.

    Args:
        reference: An answer that satisfies all rules.
        rules: At least one rule, all of one family.
        wanted: Whether to satisfy each rule.
        random: The source of randomness.
    """
    given = (text for rule in rules for text in rule.given.values())
    words = re.findall(r"\w+", " ".join([reference, *given]))
    whole = re.split(r"(\W+)", reference)
    best, most, parts, here = whole, -1, whole, -1
    for k in range(_EDITS):
        other = _edited(parts, words, random) if k % _RESTART else whole
        matches = sum(map(eq, check_rules(rules, "".join(other)), wanted))
        if matches >= here or k % _RESTART == 0:
            parts, here = other, matches
        if matches > most:
            best, most = other, matches
        if most == len(rules):
            break
    return "".join(best)


def _edited(parts: Sequence[str], words: Sequence[str], random: Random) -> list[str]:
    """Return a copy of `parts`, which alternates words and separators, after one random edit."""
    new = list(parts)
    at, to = (random.randrange(0, len(new), 2) for _ in range(2))
    edit = random.randrange(7)
    if edit < 3:
        new[at], new[to] = new[to], new[at]
    elif edit == 3:
        new[at] = random.choice(words)
    elif edit == 4:
        for _ in range(random.choice((1, 1, 2, 5))):
            new[at + 1 : at + 1] = random.choice(_BETWEEN), random.choice(words)
    elif edit == 5:
        del new[at : at + 2 * random.randint(1, 4)]
    elif at + 1 < len(new):
        new[at + 1] = random.choice(_BETWEEN)
    return new or [""]


def _drafts(text: str) -> Iterator[str]:
    """Yield the drafts in a prompt, between tags or as the result of a step."""
    at, unclosed = 0, set[str]()
    while found := _DRAFT.search(text, at):
        at, tag = found.end(), found[1]
        closing = f"\n</{tag}>"
        if tag is None:
            after = _AFTER_RESULT.search(text, at)
            end = after.start() if after else len(text)
            yield text[at:end]
            at = end
        elif tag not in unclosed and (end := text.find(closing, at)) >= 0:
            yield text[at:end]
            at = end + len(closing)
        else:
            unclosed.add(tag)  # further tags of this name cannot be closed either
