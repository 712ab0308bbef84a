"""A simulated agent that plans, calls tools, criticises and searches, without an API key or a network.

It reads only the text of the prompt: a problem of the domains `word_sums`, `multi_hop` or `game24`, and the
values that steps, tool results, a plan or lessons state. A value that is not stated is right with probability
`unaided`, and the next step is right with probability `skill`. A prompt of a domain is recognised by its
closing words, a prompt of a strategy by the purpose of the call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from random import Random
from typing import Any

import msgspec

from tot_lab.core.arithmetic import joined
from tot_lab.core.calls import Call, Message, Reply, TokenLogprob, ToolCall
from tot_lab.core.reading.answers import final_answer
from tot_lab.core.reading.json_values import read_json
from tot_lab.core.reading.mathematics import last_number
from tot_lab.domains.game24 import game24
from tot_lab.domains.game24.player import SimGame24
from tot_lab.domains.multi_hop import (
    RELATIONS,
    Hops,
    Relation,
    Thing,
    bare_name,
    facts_in,
    hops_in,
    title_of,
    world,
)
from tot_lab.domains.player import OPEN_STEP, STRATEGY_FORMS, Player, Responder, candidates_in
from tot_lab.domains.word_sums import Problem, problem_in
from tot_lab.models.simulated import Probability

FINAL = "final-answer"
"""Name of the tool with which the agent gives its answer and ends a tool loop."""

_FORMS = (
    ("vote", re.compile(r"best: ?N\b")),
    ("joint", re.compile(r"JSON array of the \d+ numbers")),
    ("judge", re.compile(r"one word, yes or no")),
    ("value", re.compile(r"first line of your reply is `score: `")),
    ("propose", re.compile(r"Suggest (\d+) different next steps")),
    ("sample", re.compile(r"What is the next step\?")),
    ("answer", re.compile(r"^Answer: <", re.M)),
)
_PLANNING = re.compile(r"once there is a plan, and not yet")
_LAST_TURN = re.compile(r"One turn is left")
_GIVEN = re.compile(r"\A(?>.*?<answer>\n)(.*?)\n?</answer>", re.S)
_CANDIDATES = re.compile(r"^Candidates? for the next step:$", re.M)
_REFERENCE = re.compile(r"\{\{from_step:(s\d+)(?::summary)?\}\}")
_RESULT = re.compile(r"^(s\d+)\b[^\n]*\[completed\][^\n]*\n(?:(?!s\d+ )[^\n]*\n)*? +result: ([^\n]*)", re.M)
_LISTED = re.compile(r"^(s\d+)\b[^\n]*\[\w+\]", re.M)
_HAND = re.compile(r"^Numbers: (\d+ \d+ \d+ \d+)$", re.M)


# A problem as a chain of values, each of which depends on earlier ones. In the methods, `k` is the index of a
# value, and `known` contains the values found so far, as texts.


class _Sums:
    """A problem of `word_sums`: each value is the result of a calculation."""

    tools = frozenset({"calculator"})

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.count = len(problem.steps)

    def value(self, k: int, known: Sequence[str]) -> str:
        """Return the correct value `k`, assuming that `known` is correct."""
        left, op, right = self.subject(k, known).split()
        return str(joined(Fraction(left), op, Fraction(right)) or 0)

    def statement(self, k: int, known: Sequence[str], value: str) -> str:
        """Return a step that states value `k`."""
        return f"{self.subject(k, known)} = {value}"

    def find(self, k: int, known: Sequence[str], text: str) -> str | None:
        """Return value `k` as stated in `text`, or `None`."""
        stated = _equation(self.subject(k, known)).findall(text)
        return stated[-1] if stated else None

    def wrong_value(self, value: str, k: int, random: Random) -> str:
        """Return a wrong alternative to `value`."""
        place = len(value) - random.randint(1, (len(value) + 1) // 2)  # changes a digit in the second half
        return value[:place] + random.choice("123456789".replace(value[place], "")) + value[place + 1 :]

    def wrong_step(self, k: int, known: Sequence[str], random: Random) -> str:
        """Return a true step that does not lead to value `k`."""
        expression = self._wrong(k, known, random)
        left, op, right = expression.split()
        return f"{expression} = {joined(Fraction(left), op, Fraction(right)) or 0}"

    def tool_call(self, k: int, known: Sequence[str], text: str) -> tuple[str, dict[str, str]]:
        """Return the next tool to call for value `k`, and its arguments."""
        return "calculator", {"expression": self.subject(k, known)}

    def useless_call(self, k: int, known: Sequence[str], random: Random) -> tuple[str, dict[str, str]]:
        """Return a valid tool call that does not lead to value `k`."""
        return "calculator", {"expression": self._wrong(k, known, random)}

    def plan_step(self, k: int, known: Sequence[str], has: frozenset[str]) -> dict[str, Any]:
        """Return a step of a plan that finds value `k`. Values that are not known are references to earlier
        steps. `has` contains the names of the available tools.
        """
        expression = re.sub(r"\bs\d+\b", r"{{from_step:\g<0>}}", self.subject(k, known))
        step: dict[str, Any] = {"title": f"calculation {k + 1}", "instruction": f"Calculate {expression}."}
        if "calculator" in has:
            return {
                **step,
                "type": "tool_call",
                "toolName": "calculator",
                "toolArgs": {"expression": expression},
            }
        return {**step, "type": "analysis"}

    def same(self, one: str, other: str) -> bool:
        """Return whether two answers are equal."""
        return last_number(one) is not None and last_number(one) == last_number(other)

    def subject(self, k: int, known: Sequence[str]) -> str:
        """Return the expression or phrase for value `k`. Unknown earlier values appear as s1, s2, …"""
        left, op, right = self.problem.steps[k].split()
        values = {**{name: str(value) for name, value in self.problem.given.items()}}
        values |= {f"s{number}": value for number, value in enumerate(known, 1)}
        return f"{values.get(left, left)} {op} {values.get(right, right)}"

    def _wrong(self, k: int, known: Sequence[str], random: Random) -> str:
        left, op, right = self.subject(k, known).split()
        operands = sorted({str(value) for value in self.problem.given.values()} | {*known})
        right = random.choice([number for number in operands if number not in (left, right)])
        return f"{left} {random.choice([sign for sign in '+-*' if sign != op])} {right}"


class _Lookups:
    """A question of `multi_hop`: each value is a name in a document. The methods are those of `_Sums`."""

    tools = frozenset({"search", "open"})

    def __init__(self, hops: Hops) -> None:
        self.hops = hops
        self.count = len(hops.relations)

    def value(self, k: int, known: Sequence[str]) -> str:
        at, relation = self._thing_before(k, known), self.hops.relations[k]
        there = world().facts.get((relation.name, at))
        return there.name if there else "nobody knows"

    def statement(self, k: int, known: Sequence[str], value: str) -> str:
        return _fact(self.hops.relations[k], self._thing_before(k, known), value)

    def find(self, k: int, known: Sequence[str], text: str) -> str | None:
        at, relation = self._thing_before(k, known), self.hops.relations[k]
        results = re.findall(
            rf"What is the name of {re.escape(self.subject(k, known))}\?\s+result: ([^\n]+)", text
        )
        there = facts_in(text).get((relation.name, at))
        return there.name if there else results[-1].strip() if results else None

    def wrong_value(self, value: str, k: int, random: Random) -> str:
        kind = self.hops.relations[k].to
        names = sorted({there.name for there in world().facts.values() if there.kind == kind} - {value})
        return random.choice(names)

    def wrong_step(self, k: int, known: Sequence[str], random: Random) -> str:
        relation = random.choice([one for one in RELATIONS if one.of in ("bridge", "river")])
        things = sorted(thing for name, thing in world().facts if name == relation.name)
        thing = random.choice(things)
        return _fact(relation, thing, world().facts[relation.name, thing].name)

    def tool_call(self, k: int, known: Sequence[str], text: str) -> tuple[str, dict[str, str]]:
        at = self._thing_before(k, known)
        title = title_of(at)
        listed = re.search(rf"(?:^|→ )\d+\. {re.escape(title)}:", text, re.M)
        return ("open", {"title": title}) if listed else ("search", {"query": at.phrase.removeprefix("the ")})

    def useless_call(self, k: int, known: Sequence[str], random: Random) -> tuple[str, dict[str, str]]:
        return "search", {"query": random.choice(sorted(world().documents))}

    def plan_step(self, k: int, known: Sequence[str], has: frozenset[str]) -> dict[str, Any]:
        relation = self.hops.relations[k]
        if k <= len(known):
            phrase = self.subject(k, known)
        else:
            phrase = relation.question.format(x=Thing(relation.of, f"{{{{from_step:s{k}}}}}").phrase)
        step: dict[str, Any] = {
            "title": f"find {relation.name}",
            "instruction": f"What is the name of {phrase}?",
        }
        if self.tools <= has:
            return {**step, "type": "composite", "toolHints": ["search", "open"]}
        return {**step, "type": "analysis"}

    def same(self, one: str, other: str) -> bool:
        return bare_name(one) == bare_name(other)

    def _thing_before(self, k: int, known: Sequence[str]) -> Thing:
        return self.hops.start if k == 0 else Thing(self.hops.relations[k].of, known[k - 1])

    def subject(self, k: int, known: Sequence[str]) -> str:
        relation = self.hops.relations[k]
        if k == 0:
            return relation.question.format(x=self.hops.start.phrase)
        return relation.question.format(x=self._thing_before(k, known).phrase if len(known) >= k else f"s{k}")


_Chain = _Sums | _Lookups


def _outline(chain: _Chain, k: int) -> str:
    """Describe how to find value `k`. Earlier values are referred to as s1, s2, …"""
    return f"s{k + 1} = {chain.subject(k, [])}"


def _known_values(chain: _Chain, text: str) -> list[str]:
    """Return the values that `text` states, right or wrong, up to the first value that it does not state."""
    known: list[str] = []
    while len(known) < chain.count and (value := chain.find(len(known), known, text)) is not None:
        known.append(value)
    return known


def _true_values(chain: _Chain) -> list[str]:
    known: list[str] = []
    while len(known) < chain.count:
        known.append(chain.value(len(known), known))
    return known


class _Responder(Responder["SimAgent"]):
    """Composes replies from the problem of a conversation and the values that the conversation states."""

    forms = _FORMS
    every_paragraph = True
    purposes = STRATEGY_FORMS

    @staticmethod
    def conversation(call: Call) -> str:
        """Return the conversation as one text, with each tool result after its call."""
        calls: dict[str, ToolCall] = {}
        parts = []
        for message in call.messages:
            calls |= {request.id: request for request in message.tool_calls}
            request = calls.get(message.tool_call_id or "")
            asked = f"{request.name}({request.arguments})\n{request.name} → " if request else ""
            parts.append(f"{asked}{message.content}")
        return "\n\n".join(parts)

    @cached_property
    def chain(self) -> _Chain:
        """The first problem in the conversation.

        Raises:
            ValueError: If the conversation contains no problem.
        """
        chain = _parse_chain(self.text)
        if chain is None:
            raise ValueError(
                f"The prompt must contain a problem of word_sums or multi_hop: got {self.text[:80]!r}."
            )
        return chain

    @cached_property
    def known(self) -> list[str]:
        """The values that the conversation states. For a proposal, only the text before the first reply is
        read, so that values in tool results do not count.
        """
        return _known_values(
            self.chain, _first_turns(self.call) if self.form in ("propose", "sample") else self.text
        )

    def understands(self) -> bool:
        return _parse_chain(self.text) is not None

    # Thoughts and answers.

    def sample(self) -> str:
        """Return a tool call that the next step needs, or else the next step."""
        return self.look_up() or self._next_step()

    def propose(self) -> str:
        """Return a tool call that the next steps need, or else the next steps as a JSON list."""
        return self.look_up() or json.dumps([self._next_step() for _ in range(self.count)])

    def _next_step(self) -> str:
        k, chain, random = len(self.known), self.chain, self.random
        if _PLANNING.search(self.text):
            return self._next_outline()
        if not self._chooses_right(k):
            return chain.wrong_step(min(k, chain.count - 1), self.known, random)
        if k == chain.count:
            return f"Answer: {self.known[-1]}"
        value = chain.find(k, self.known, self.text)
        return chain.statement(k, self.known, value or self._recall(k, self.known, self.player.unaided))

    def _next_outline(self) -> str:
        planned = self._outline_count(self.text)
        if planned == self.chain.count:
            return f"Then the answer is s{planned}."
        if self._chooses_right(planned):
            return _outline(self.chain, planned)
        return _outline(self.chain, self.random.randrange(self.chain.count)).replace("s1 =", "s0 =")

    def _outline_count(self, text: str) -> int:
        """Return how many values, counted from the first, have their outline in `text`."""
        outlines = (_outline(self.chain, k) for k in range(self.chain.count))
        return next((k for k, outline in enumerate(outlines) if outline not in text), self.chain.count)

    def answer(self) -> str:
        """Return a complete answer. Values that are not known are found without tools."""
        reasoning = "Think step by step" in self.text
        unaided = self.player.unaided if reasoning else self.player.unaided**2
        values, lines = self._finish(unaided)
        answer = f"Answer: {values[-1]}"
        return "\n".join([*lines, answer]) if reasoning else answer

    def _finish(self, unaided: float) -> tuple[list[str], list[str]]:
        """Find the unknown values without tools. Returns all values, and a step for each new value."""
        values, lines = list(self.known), list[str]()
        while len(values) < self.chain.count:
            k = len(values)
            value = self._recall(k, values, unaided if self._chooses_right(k) else 0.0)
            lines.append(self.chain.statement(k, values, value))
            values.append(value)
        return values, lines

    def _recall(self, k: int, known: Sequence[str], unaided: float) -> str:
        value = self.chain.value(k, known)
        right = self.random.random() < unaided
        return value if right else self.chain.wrong_value(value, k, self.random)

    def _chooses_right(self, k: int) -> bool:
        """Return at random whether the next step is right. The agent has two tries if the text outlines value
        `k`.
        """
        outlined = k < self.chain.count and _outline(self.chain, k) in self.text
        return self.succeeds(twice=outlined)

    # Judgements.

    @cached_property
    def candidates(self) -> list[tuple[str, str]]:
        """The candidates, each with the text before it."""
        if self.form == "vote":
            parts = (part.partition("The candidate:\n") for part in candidates_in(self.text))
            return [(before, rest.partition("\n\n")[0].strip()) for before, _, rest in parts]
        before, _, rest = _CANDIDATES.sub("\0", self.text).partition("\0")
        if self.form == "joint":
            return [(before, one) for one in candidates_in(self.text)]
        return [(before, rest.strip().partition("\n\n")[0])]

    def believes(self) -> bool:
        return self.judgement_of(self._is_right(*self.candidates[0]))

    def scores(self) -> list[float]:
        """Return the scores of the candidates. An answer that the agent believes to be right scores 1."""
        return [self._score(before, candidate) for before, candidate in self.candidates]

    def value(self) -> str:
        """Return the score of a candidate."""
        return f"score: {self.scores()[0]}\nI followed the steps."

    def _score(self, before: str, candidate: str) -> float:
        believed = self.judgement_of(self._is_right(before, candidate))
        return 1.0 if believed and final_answer(candidate) is not None else self.score_of(believed)

    def _is_right(self, before: str, candidate: str) -> bool:
        chain, right = self.chain, _true_values(self.chain)
        stated = final_answer(candidate)
        if stated is not None:
            return chain.same(stated, right[-1])
        planned = self._outline_count(before)
        if (
            self._outline_count(f"{before}\n{candidate}") > planned
            or candidate == f"Then the answer is s{chain.count}."
        ):
            return True
        known, now = _known_values(chain, before), _known_values(chain, f"{before}\n{candidate}")
        return len(now) > len(known) and now == right[: len(now)]

    # Acting.

    def act(self) -> str:
        """Return one turn of a tool loop: a tool call or an answer."""
        call = self.call
        offered, k = _offered_tools(call), len(self.known)
        last = _LAST_TURN.search(call.messages[-1].content)
        if last or not self.chain.tools & offered:
            return self._final_answer(offered, self._finish(self.player.unaided)[0][-1])
        if self._chooses_right(k):
            if k == self.chain.count:
                return self._final_answer(offered, self.known[-1])
            return _tool_call(*self.chain.tool_call(k, self.known, self.text))
        return self._wrong_turn(offered)

    def look_up(self) -> str:
        """Return a tool call to make before a proposal, or by mistake a useless one. "" if none is needed, or
        if the agent forgets it.
        """
        k = len(self.known)
        needless = k == self.chain.count or self.chain.find(k, self.known, self.text) is not None
        if needless or not self.chain.tools & _offered_tools(self.call) or _PLANNING.search(self.text):
            return ""
        if self._chooses_right(k):
            return _tool_call(*self.chain.tool_call(k, self.known, self.text))
        return (
            _tool_call(*self.chain.useless_call(k, self.known, self.random))
            if self.random.random() < 0.5
            else ""
        )

    def _wrong_turn(self, offered: frozenset[str]) -> str:
        """Return a wrong turn: a repeated tool call, a useless one, or a premature answer."""
        k = min(len(self.known), self.chain.count - 1)
        asked = [request for message in self.call.messages for request in message.tool_calls]
        turn = self.random.choice(("again", "stray", "hasty"))
        if turn == "again" and asked and asked[-1].name in offered:
            return _tool_call(asked[-1].name, read_json(asked[-1].arguments) or {})
        if turn != "hasty":
            return _tool_call(*self.chain.useless_call(k, self.known[:k], self.random))
        guess = self._finish(self.player.unaided**2)[0][-1]
        return self._final_answer(offered, self.chain.wrong_value(guess, self.chain.count - 1, self.random))

    def _final_answer(self, offered: frozenset[str], answer: str) -> str:
        return _tool_call(FINAL, {"answer": answer}) if FINAL in offered else f"Answer: {answer}"

    # Critiques and reflections.

    def critique(self) -> str:
        """Return SATISFIED, or UNSATISFIED with a lesson."""
        given = _GIVEN.search(self.text)
        answer = (given[1] if given else final_answer(self.text)) or ""
        right = self.chain.same(answer, _true_values(self.chain)[-1])
        if right == self.notices():
            return f"SATISFIED: I checked the steps, and {answer} follows from them."
        lesson = _outline(self.chain, self.random.randrange(self.chain.count))
        if self.notices():
            lesson = "\n".join(_outline(self.chain, k) for k in range(self.chain.count))
        return (
            f"UNSATISFIED: {answer or 'no answer'} does not follow. Look each step up; the way is\n{lesson}"
        )

    def review(self) -> str:
        """Return a verdict on whether a plan has reached its goal, and the answer."""
        known = _known_values(self.chain, _resolve(self.text))
        if len(known) == self.chain.count and self.notices():
            return f"SATISFIED: all that was asked for is known.\nAnswer: {known[-1]}"
        if len(known) == self.chain.count or self.notices():
            lacking = _outline(self.chain, min(len(known), self.chain.count - 1))
            return f"UNSATISFIED: this is still to be found out: {lacking}"
        values, _ = self._finish(self.player.unaided)
        return f"SATISFIED: it is done.\nAnswer: {values[-1]}"

    def reflect(self) -> str:
        """Return the progress so far, and the next step."""
        k = len(self.known)
        lacking = (
            _outline(self.chain, k) if k < self.chain.count and self._chooses_right(k) else "give the answer"
        )
        return f"{k} of {self.chain.count} things are known; the course is right.\nNext: {lacking}"

    def synthesize(self) -> str:
        """Return a summary of the known values."""
        lines = [self.chain.statement(k, self.known, value) for k, value in enumerate(self.known)]
        return "\n".join(["Known so far:", *lines]) if lines else "Nothing is known yet."

    def route(self) -> str:
        """Return the kind of the task, from which a router chooses a strategy."""
        kinds = ("simple", "steps", "open", "writing")
        right = "simple" if self.chain.count == 1 else "steps"
        kind = right if self.random.random() < self.player.skill else self.random.choice(kinds)
        return json.dumps({"kind": kind})

    # Plans.

    def plan(self) -> str:
        """Return steps for the unknown values. Their ids continue those of existing steps."""
        first = len(set(_LISTED.findall(self.text)))
        known = _known_values(self.chain, _resolve(self.text))
        begin = min(len(known), self.chain.count - 1)
        return self._steps([(k, f"s{first + k - begin + 1}") for k in range(begin, self.chain.count)], known)

    augment = plan

    def patch(self) -> str:
        """Return new versions of the incomplete steps or, if the prompt asks for other steps, a new plan."""
        if "Write other steps in place" in self.text:
            return self.plan()
        known = _known_values(self.chain, _resolve(self.text))
        places = enumerate(OPEN_STEP.findall(self.text), len(known))
        return self._steps([(min(k, self.chain.count - 1), id) for k, id in places], known)

    def _steps(self, places: Sequence[tuple[int, str]], known: Sequence[str]) -> str:
        """Return one step for each pair (index of a value, id of the step) in `places`."""
        ids = {f"s{k + 1}": id for k, id in reversed(places)}
        steps = []
        for k, id in places:
            step = self.chain.plan_step(k, known, _named_tools(self.text))
            step = step if self._chooses_right(k) else self._wrong_plan_step(step, k, known)
            encoded = _REFERENCE.sub(
                lambda match: f"{{{{from_step:{ids.get(match[1], match[1])}}}}}", json.dumps(step)
            )
            steps.append({"id": id, **json.loads(encoded)})
        return json.dumps({"steps": steps})

    def _wrong_plan_step(self, step: dict[str, Any], k: int, known: Sequence[str]) -> dict[str, Any]:
        """Return a step that fails: it is vague, computes something else, or opens a guessed title."""
        if step["type"] == "analysis":
            return {**step, "instruction": "Think about it."}
        if step["type"] == "composite":
            name = known[k - 1] if 0 < k <= len(known) else f"{{{{from_step:s{k}}}}}"
            name = name if k else self.chain.tool_call(0, [], "")[1]["query"]
            return {**step, "type": "tool_call", "toolName": "open", "toolArgs": {"title": name}}
        values = [*known, *("1" for _ in range(k - len(known)))]
        return {**step, "toolArgs": self.chain.useless_call(k, values, self.random)[1]}

    def analysis(self) -> str:
        """Return the result of a step of a plan, found without tools."""
        asked = re.findall(r"Calculate (\d+ [-+*/] \d+)", self.text)
        question = hops_in(self.text[max(self.text.rfind("What is the name of"), 0) :])
        part: _Chain | None = None
        if isinstance(self.chain, _Sums) and asked:
            left, op, right = asked[-1].split()
            part = _Sums(Problem({"a": int(left), "b": int(right)}, (f"a {op} b",)))
        elif question is not None:
            part = _Lookups(question)
        step = _Responder(self.player, self.call, self.random)
        step.chain = part or self.chain
        return step._finish(self.player.unaided)[0][-1]

    # The Game of 24, played by `SimGame24`.

    def refuse(self) -> str | Sequence[TokenLogprob]:
        """Return the reply of `SimGame24` if the prompt is about the Game of 24, else `unknown`."""
        call, text, random, agent = self.call, self.text, self.random, self.player
        hand = _HAND.search(text)
        player = SimGame24(skill=agent.skill, noise=agent.noise, garble=agent.garble)
        if hand is None or call.purpose not in STRATEGY_FORMS:
            known = hand is not None or "Game of 24" in text
            return player.written(call, random) if known else agent.unknown
        task = game24(hand[1])
        request = Call(call.node, "answer", (Message("user", task.domain.answer_prompt(task, False)),))
        reply = str(player.written(request, random))
        answer = final_answer(reply) or reply
        if call.purpose == "act":
            return _tool_call(FINAL, {"answer": answer}) if FINAL in _offered_tools(call) else reply
        if call.purpose == "critique":
            return player.written(call, random)
        if call.purpose == "review":
            stated = final_answer(text.rpartition("result:")[2]) or ""
            right = task.grade(stated) == 1.0
            verdict = "SATISFIED: " if self.judgement_of(right) else "UNSATISFIED: look again at "
            return f"{verdict}{stated}\nAnswer: {stated or answer}"
        if call.purpose in ("plan", "augment", "patch"):
            step = {
                "title": "play",
                "type": "analysis",
                "instruction": "Find the expression.",
            }
            return json.dumps({"steps": [{**step, "id": id} for id in OPEN_STEP.findall(text)] or [step]})
        if call.purpose == "route":
            return json.dumps({"kind": "open"})
        return reply


class SimAgent(Player):
    """A simulated agent for `word_sums`, `multi_hop` and the Game of 24.

    It calls tools natively if the call offers them.
    """

    kind = "sim/agent"
    responder = _Responder
    garbled = ("", "...", "I have lost the thread here.", '{"name": "calc', "?? ?? ??")
    unknown = "I am a simulated agent, and I do not understand this prompt."

    skill: Probability = 0.8
    """Probability that a thought, a tool call or a step of a plan is right, 0–1.

    If a plan or a lesson names the right step, the agent has two tries. A critique is right with probability
    (1 + skill) / 2.
    """

    unaided: Probability = 0.3
    """Probability that a calculation or a fact is right without a tool, 0–1.

    The probability is squared if the agent does not write down its steps.
    """

    noise: Probability = 0.1
    """Probability that a judgement of a thought is the opposite of the truth, 0–1."""

    async def __call__(self, call: Call) -> Reply:
        """Return the reply to `call` after `latency`. A tool call written as JSON becomes a native one."""
        reply = await super().__call__(call)
        request = (
            read_json(reply.text) if _offered_tools(call) and reply.text.startswith('{"name": ') else None
        )
        if not isinstance(request, dict) or request.get("name") not in _offered_tools(call):
            return reply
        turns = sum(message.role == "assistant" for message in call.messages)
        made = ToolCall(f"call-{turns}", request["name"], json.dumps(request["arguments"]))
        return msgspec.structs.replace(reply, text="", tool_calls=(made,), finish_reason="tool_calls")


# Reading conversations.


def _first_turns(call: Call) -> str:
    """Return the text of the messages before the first reply of the model."""
    roles = [message.role for message in call.messages]
    end = roles.index("assistant") if "assistant" in roles else len(roles)
    return "\n\n".join(message.content for message in call.messages[:end])


@lru_cache(maxsize=256)
def _parse_chain(text: str) -> _Chain | None:
    """Return the first word problem in `text`, or else the first question of `multi_hop`, or `None`."""
    problem, hops = problem_in(text), hops_in(text)
    return _Sums(problem) if problem else _Lookups(hops) if hops else None


def _offered_tools(call: Call) -> frozenset[str]:
    return frozenset() if call.tool_choice == "none" else frozenset(tool["name"] for tool in call.tools)


def _named_tools(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"^- (calculator|search|open): ", text, re.M))


def _equation(expression: str) -> re.Pattern[str]:
    """Return a pattern for the value of an expression in an equation or in the result of a tool."""
    return re.compile(
        rf"(?<![\d.]){re.escape(expression)}(?!\d)[\"'}}).\s]*(?:\d+\.\s+)?(?:calculator\s*)?"
        rf"(?:=|→|result:)\s*(-?\d+)(?![\d/]|\.\d)"
    )


def _resolve(text: str) -> str:
    """Replace references to steps by the results of the steps."""
    results = dict(_RESULT.findall(text))
    return _REFERENCE.sub(lambda match: results.get(match[1], match[0]), text)


def _fact(relation: Relation, of: Thing, name: str) -> str:
    sentence = relation.sentence.format(x=of.phrase, y=Thing(relation.to, name).phrase)
    return sentence[0].upper() + sentence[1:]


# Writing.


def _tool_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a tool call as JSON."""
    return json.dumps({"name": name, "arguments": arguments})
