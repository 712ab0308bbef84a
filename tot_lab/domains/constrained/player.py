"""A simulated player of the tasks under hard constraints, for any strategy, Deep Think included.

It reads the rules and the drafts from the text of the prompt alone, and satisfies a rule with probability
`skill`. A rule that the prompt repeats, in a critique or an approach for example, gets two tries. A prompt of
the domain is recognised by its closing words, a prompt of a strategy by the purpose of the call.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from random import Random
from typing import Any

from tot_lab.core.calls import Call, TokenLogprob
from tot_lab.domains.constrained.answers import Stream, make_answer
from tot_lab.domains.constrained.constraints import Rule, bare, kept_by, rules_in
from tot_lab.models.simulated import JUDGING, Share, Simulated, without_candidates

_KINDS = (
    "branch", "develop", "converge", "act", "critique", "review", "plan", "patch", "augment", "analysis",
    "reflect", "route", "synthesize",
)  # fmt: skip
_FORMS = (  # kinds of prompts of the domain, by their closing words
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
_OPEN = re.compile(r"^(s\d+)\b[^\n]*\[(?:failed|skipped|pending)\]", re.M)
_COUNT = re.compile(r"Find (\d{1,2}) different approaches")
_GARBLED = ("", "\n", "   ", "\n\n")
_UNKNOWN = "I am a simulated player of tasks under constraints, and I do not understand this prompt."


class SimConstrained(Simulated):
    """A simulated writer for the tasks of `constrained`."""

    kind = "sim/constrained"

    skill: Share = 0.8
    """Probability that a draft satisfies a rule, 0–1. A violated rule is noticed with probability
    (1 + skill) / 2, and repaired in the next draft."""

    noise: Share = 0.1
    """Probability that a judgement is random, 0–1."""

    garble: Share = 0.0
    """Share of replies that are empty, 0–1."""

    def written(self, call: Call, random: Random) -> str | Sequence[TokenLogprob]:
        text = call.prompt
        rules = rules_in(text)
        form, count = _form_of(call, text)
        if not rules or form == "":
            return _UNKNOWN
        responder = _Responder(self, rules, text, random)
        if form == "judge" and call.logprobs:
            return [responder.verdict()]
        if random.random() < self.garble:
            return random.choice(_GARBLED)
        replies: Mapping[str, Callable[[], str]] = {
            "sample": responder.draft,
            "propose": lambda: "\n\n".join(f"Draft {k}:\n{responder.draft()}" for k in range(1, count + 1)),
            "answer": responder.draft,
            "analysis": responder.draft,
            "aloud": lambda: f"I went through the {len(rules)} rules.\nAnswer:\n{responder.draft()}",
            "value": responder.value,
            "judge": lambda: "yes" if all(responder.believed(responder.last)) else "no",
            "vote": responder.vote,
            "joint": lambda: json.dumps([round(responder.share(one), 2) for one in responder.candidates]),
            "branch": responder.branch,
            "develop": responder.develop,
            "converge": responder.converge,
            "act": responder.act,
            "critique": responder.critique,
            "review": responder.review,
            "plan": lambda: responder.plan([]),
            "augment": lambda: responder.plan([]),
            "patch": lambda: responder.plan(_OPEN.findall(text)),
            "reflect": lambda: f"The rules have to be held together.\nNext: {responder.any_rule()}",
            "route": responder.route,
            "synthesize": lambda: (
                f"The last draft:\n{responder.last}" if responder.drafts else "There is no draft yet."
            ),
        }
        return replies[form]()


class _Responder:
    """Composes the reply to one prompt."""

    def __init__(self, player: SimConstrained, rules: tuple[Rule, ...], text: str, random: Random) -> None:
        self.player = player
        self.rules = rules
        self.text = text
        self.random = random
        self.drafts = [bare(draft) for draft in _drafts(text)]
        self.repeated = [text.count(rule.text) > 1 for rule in rules]  # outside the list of rules too

    @property
    def last(self) -> str:
        """The last draft in the prompt."""
        return self.drafts[-1] if self.drafts else ""

    @cached_property
    def candidates(self) -> list[str]:
        """The last draft of each candidate."""
        parts = [list(_drafts(part)) for part in _CANDIDATE.split(self.text)[1:]]
        return [bare(found[-1]) if found else "" for found in parts]

    # Writing.

    def draft(self) -> str:
        """A first draft, or an improvement of the last one."""
        return self.improve(self.drafts[-1:])[0]

    def improve(self, drafts: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
        """Make one answer from `drafts`, based on the draft that it believes to be best.

        Returns:
            The answer, and pairs of a rule and the other draft that it was adopted from.
        """
        tries = [self._succeeds(repeated) for repeated in self.repeated]
        if not drafts:
            return self._make(tries), []
        seen = [self.believed(draft) for draft in drafts]
        at = max(range(len(drafts)), key=lambda k: sum(seen[k]))
        kept = [kept_by(self.rules, draft) for draft in drafts]
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
        now = kept_by(self.rules, made)
        worse = sum(map(bool.__eq__, now, wanted)) < sum(map(bool.__eq__, kept[at], wanted))
        return (drafts[at], []) if worse else (made, taken)

    def _succeeds(self, repeated: bool) -> bool:
        return self.random.random() >= (1 - self.player.skill) ** (2 if repeated else 1)

    def _make(self, wanted: Sequence[bool]) -> str:
        return make_answer(self.rules, wanted, Stream(str(self.random.random())))

    # Judging.

    def believed(self, draft: str) -> list[bool]:
        """Whether the player believes that a draft satisfies each rule."""
        if self.random.random() < self.player.noise:
            return [self.random.random() < 0.5 for _ in self.rules]
        sight = (1 + self.player.skill) / 2
        return [kept or self.random.random() >= sight for kept in kept_by(self.rules, draft)]

    def share(self, draft: str) -> float:
        """The share of rules that the player believes a draft satisfies, 0–1."""
        return sum(self.believed(draft)) / len(self.rules)

    def value(self) -> str:
        """A verdict on each rule, and the score."""
        seen = self.believed(self.last)
        lines = [f"- {'kept' if one else 'broken'}: {rule.text}" for rule, one in self._with(seen)]
        return "\n".join([*lines, f"score: {sum(seen)}/{len(seen)}"])

    def vote(self) -> str:
        """The best candidate."""
        shares = [self.share(one) for one in self.candidates] or [0.0]
        return f"best: {self.random.choice([k for k, s in enumerate(shares, 1) if s == max(shares)])}"

    def verdict(self) -> TokenLogprob:
        """Yes or no as a token, with the log-probabilities of both."""
        likely = self.random.uniform(0.6, 0.95)
        yes = likely if all(self.believed(self.last)) else 1 - likely
        top = {"yes": math.log(yes), "no": math.log(1 - yes)}
        word = max(top, key=lambda label: top[label])
        return TokenLogprob(word, top[word], top)

    def _with(self, seen: Sequence[bool]) -> list[tuple[Rule, bool]]:
        return list(zip(self.rules, seen, strict=True))

    def _broken(self, seen: Sequence[bool]) -> list[str]:
        return [rule.text for rule, kept in self._with(seen) if not kept]

    # Deep Think.

    def branch(self) -> str:
        """Approaches that each begin with another rule. Rules that the prompt repeats come first."""
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
        """A solution by one approach, with a self-assessment."""
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
                "strengths": [rule.text for rule, kept in self._with(seen) if kept],
                "weaknesses": self._broken(seen),
            }
        )

    def converge(self) -> str:
        """A verdict on each solution, and a synthesis of all."""
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
        return bare(next(_drafts(text), ""))

    def _evaluation(self, name: str, seen: Sequence[bool]) -> dict[str, Any]:
        worth = round(10 * sum(seen) / len(seen), 1)
        verdict = "all rules are kept" if all(seen) else f"{len(seen) - sum(seen)} rules are broken"
        criteria = ("correctness", "completeness", "elegance", "practicality")
        return {"name": name, **dict.fromkeys(criteria, worth), "verdict": verdict}

    # The other strategies.

    def act(self) -> str:
        """An immediate answer, through the tool `final-answer` if the prompt names it."""
        answer = self.draft()
        if "final-answer" not in self.text:
            return f"Answer:\n{answer}"
        return json.dumps({"name": "final-answer", "arguments": {"answer": answer}})

    def critique(self) -> str:
        """SATISFIED, or UNSATISFIED with the rules that it believes violated."""
        broken = self._broken(self.believed(self.last))
        if not broken:
            return "SATISFIED: I held it against each rule, and they are kept."
        return "\n".join(["UNSATISFIED: see to these rules:", *(f"- {text}" for text in broken)])

    def review(self) -> str:
        """A critique of the result of a plan, and the answer."""
        return f"{self.critique()}\nAnswer:\n{self.last or self.draft()}"

    def plan(self, ids: Sequence[str]) -> str:
        """A plan with one step, or with one step for each of `ids`."""
        step = {
            "title": "write the answer",
            "type": "analysis",
            "instruction": "Write an answer that keeps all rules.",
        }
        return json.dumps({"steps": [{"id": id, **step} for id in ids] or [step]})

    def route(self) -> str:
        """The kind of the task."""
        right = "writing" if self.rules[0].family == "writing" else "steps"
        kinds = ("simple", "steps", "open", "writing")
        return json.dumps({"kind": right if self._succeeds(False) else self.random.choice(kinds)})

    def any_rule(self) -> str:
        """The text of a random rule."""
        return self.random.choice(self.rules).text


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
            unclosed.add(tag)  # A later tag of this name is not closed either.


def _form_of(call: Call, text: str) -> tuple[str, int]:
    """The requested form ("" if unknown) and the requested number."""
    if call.purpose in _KINDS:
        return call.purpose, 1
    asking = without_candidates(text)
    for paragraph in reversed(asking.split("\n\n")):  # Earlier paragraphs may quote another prompt.
        for form, words in _FORMS:
            match = words.search(paragraph)
            if match is not None:
                return form, int(match[1]) if match.groups() else 1
    return "", 1
