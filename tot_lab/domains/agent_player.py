"""A simulated agent: it plans, calls tools, criticises and searches, with no key and no network.

It knows no more than a model would. It finds the structure of a problem in the prompt's own words
(those of the domains `word_sums`, `multi_hop` and `game24`) and what is known so far in what the prompt
quotes: steps, tools' results, a plan, lessons. What it cannot find there it does in its head, and mostly gets
wrong (`unaided`); which step it takes next is right as often as `skill` says. A domain's prompt is told by
its closing words, a strategy's by the call's kind.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any

import msgspec

from tot_lab.core.arithmetic import joined
from tot_lab.core.calls import Call, Message, Reply, TokenLogprob, ToolCall
from tot_lab.core.reading import read_json
from tot_lab.domains.game24 import game24
from tot_lab.domains.game24.player import SimGame24
from tot_lab.domains.general import final_answer, last_number
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
from tot_lab.domains.word_sums import Problem, problem_in
from tot_lab.models.simulated import Share, Simulated, without_candidates

FINAL = "final-answer"
"""The tool by which a loop is ended."""

KINDS = (
    "act", "critique", "review", "plan", "patch", "augment", "analysis", "reflect", "route", "synthesize",
)  # fmt: skip
"""The calls of strategies that it knows by their kind."""

_UNKNOWN = "I am a simulated agent, and I do not understand this prompt."
_GARBLED = ("", "...", "I have lost the thread here.", '{"name": "calc', "?? ?? ??")

_FORMS = (  # what a domain's prompt asks for, by its closing words
    ("vote", re.compile(r"best: ?N\b")),
    ("joint", re.compile(r"JSON array of the (\d+) numbers")),
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
_OPEN = re.compile(r"^(s\d+)\b[^\n]*\[(?:failed|skipped|pending)\]", re.M)
_HAND = re.compile(r"^Numbers: (\d+ \d+ \d+ \d+)$", re.M)


class SimAgent(Simulated):
    """A simulated agent for `word_sums`, `multi_hop` and the Game of 24.

    It calls tools natively if the call offers them.
    """

    kind = "sim/agent"

    skill: Share = 0.8
    """Probability that a step, an action or a step of a plan is right, 0–1. If a plan or a lesson names the
    right step, it errs as rarely as with two tries. Its critique is right with probability (1 + skill) /
    2."""

    unaided: Share = 0.3
    """Probability that it knows without a tool what a tool would return (a calculation, a fact), 0–1. If it
    does not write its steps down, the square of it."""

    noise: Share = 0.1
    """Probability that a judgement of a thought is the opposite of the truth, 0–1."""

    garble: Share = 0.0
    """Share of replies that cannot be read, 0–1."""

    async def __call__(self, call: Call) -> Reply:
        """The reply to `call`, after `latency`. What it writes as the call of a tool is one."""
        reply = await super().__call__(call)
        wish = read_json(reply.text) if _offered(call) and reply.text.startswith('{"name": ') else None
        if not isinstance(wish, dict) or wish.get("name") not in _offered(call):
            return reply
        turns = sum(message.role == "assistant" for message in call.messages)
        asked = ToolCall(f"call-{turns}", wish["name"], json.dumps(wish["arguments"]))
        return msgspec.structs.replace(reply, text="", tool_calls=(asked,), finish_reason="tool_calls")

    def written(self, call: Call, random: Random) -> str | Sequence[TokenLogprob]:
        text = _told(call)
        chain = _chain_in(text)
        form, count = _form_of(call, text)
        if chain is None or form == "":
            return self._of_game24(call, text, random)
        if form == "judge" and call.logprobs:
            return [self._verdict(chain, text, random)]
        if random.random() < self.garble:
            return random.choice(_GARBLED)
        mind = _Mind(self, chain, text, random)
        if form in ("propose", "sample"):
            mind.known = chain.known(_asking(call))  # the next step of the path, whatever tools told since
            return mind.looked_up(call) or mind.proposed(count, listed=form == "propose")
        asked: Mapping[str, Callable[[], str]] = {
            "act": lambda: mind.acted(call),
            "answer": lambda: mind.answered(aloud="Think step by step" in text),
            "value": lambda: f"score: {mind.score(*_candidate(text))}\nI followed the steps.",
            "judge": lambda: "yes" if mind.believes(*_candidate(text)) else "no",
            "joint": lambda: json.dumps([mind.score(*one) for one in _candidates(text)]),
            "vote": lambda: _best([mind.score(*one) for one in _voted(text)]),
            "critique": mind.criticised,
            "review": mind.reviewed,
            "plan": mind.planned,
            "augment": mind.planned,
            "patch": mind.patched,
            "analysis": mind.analysed,
            "reflect": mind.reflected,
            "route": mind.routed,
            "synthesize": mind.synthesized,
        }
        return asked[form]()

    def _verdict(self, chain: _Chain, text: str, random: Random) -> TokenLogprob:
        likely = random.uniform(0.6, 0.95)
        believes = _Mind(self, chain, text, random).believes(*_candidate(text))
        yes = likely if believes else 1 - likely
        top = {"yes": math.log(yes), "no": math.log(1 - yes)}
        word = max(top, key=lambda label: top[label])
        return TokenLogprob(word, top[word], top)

    # The Game of 24, which `SimGame24` knows how to play.

    def _of_game24(self, call: Call, text: str, random: Random) -> str | Sequence[TokenLogprob]:
        hand = _HAND.search(text)
        player = SimGame24(skill=self.skill, noise=self.noise, garble=self.garble)
        if hand is None or call.purpose not in KINDS:
            known = hand is not None or "Game of 24" in text
            return player.written(call, random) if known else _UNKNOWN
        task = game24(hand[1])
        asked = Call(call.node, "answer", (Message("user", task.domain.answer_prompt(task, False)),))
        played = str(player.written(asked, random))
        answer = final_answer(played) or played
        if call.purpose == "act":
            return _wish(FINAL, {"answer": answer}) if FINAL in _offered(call) else played
        if call.purpose == "critique":
            return player.written(call, random)
        if call.purpose == "review":
            stated = final_answer(text.rpartition("result:")[2]) or ""
            right = task.grade(stated) == 1.0
            said = "SATISFIED: " if right != (random.random() < self.noise) else "UNSATISFIED: look again at "
            return f"{said}{stated}\nAnswer: {stated or answer}"
        if call.purpose in ("plan", "augment", "patch"):
            step = {
                "title": "play",
                "type": "analysis",
                "instruction": "Find the expression.",
            }
            return json.dumps({"steps": [{**step, "id": id} for id in _OPEN.findall(text)] or [step]})
        if call.purpose == "route":
            return json.dumps({"kind": "open"})
        return played


# A problem as a chain of things to find out, each from those before.


class _Chain(ABC):
    """A problem of `count` things to find out. Values are texts; `known` holds the first ones."""

    count: int
    tools: frozenset[str]

    @abstractmethod
    def way(self, k: int) -> str:
        """What there is to find out in place `k`, by the names s1, s2, … of what comes before."""

    @abstractmethod
    def asked(self, k: int, known: Sequence[str]) -> str:
        """The same with the values that are known, as the instruction of a step."""

    @abstractmethod
    def value(self, k: int, known: Sequence[str]) -> str:
        """What it is in truth, if what is known is."""

    @abstractmethod
    def said(self, k: int, known: Sequence[str], value: str) -> str:
        """A step that says it."""

    @abstractmethod
    def found(self, k: int, known: Sequence[str], text: str) -> str | None:
        """What `text` says of it, `None` if it says nothing."""

    @abstractmethod
    def other(self, value: str, k: int, random: Random) -> str:
        """A wrong value in the place of one."""

    @abstractmethod
    def stray(self, k: int, known: Sequence[str], random: Random) -> str:
        """A step that leads nowhere."""

    @abstractmethod
    def call(self, k: int, known: Sequence[str], text: str) -> tuple[str, dict[str, str]]:
        """The tool to call next for it, with its arguments."""

    @abstractmethod
    def stray_call(self, k: int, known: Sequence[str], random: Random) -> tuple[str, dict[str, str]]:
        """A call that brings nothing."""

    @abstractmethod
    def step(self, k: int, known: Sequence[str], has: frozenset[str]) -> dict[str, Any]:
        """A step of a plan; what is not known is referred to."""

    @abstractmethod
    def same(self, one: str, other: str) -> bool:
        """Whether two answers are the same."""

    def known(self, text: str) -> list[str]:
        """The first values that `text` tells, right or wrong."""
        known: list[str] = []
        while len(known) < self.count:
            value = self.found(len(known), known, text)
            if value is None:
                break
            known.append(value)
        return known

    def right(self) -> list[str]:
        """All values as they are in truth."""
        known: list[str] = []
        while len(known) < self.count:
            known.append(self.value(len(known), known))
        return known


class _Sums(_Chain):
    """An arithmetic word problem."""

    tools = frozenset({"calculator"})

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.count = len(problem.steps)

    def way(self, k: int) -> str:
        return f"s{k + 1} = {self._expression(k, [])}"

    def asked(self, k: int, known: Sequence[str]) -> str:
        return f"Calculate {self._expression(k, known)}."

    def value(self, k: int, known: Sequence[str]) -> str:
        left, op, right = self._expression(k, known).split()
        return str(joined(Fraction(left), op, Fraction(right)) or 0)

    def said(self, k: int, known: Sequence[str], value: str) -> str:
        return f"{self._expression(k, known)} = {value}"

    def found(self, k: int, known: Sequence[str], text: str) -> str | None:
        stated = _equation(self._expression(k, known)).findall(text)
        return stated[-1] if stated else None

    def other(self, value: str, k: int, random: Random) -> str:
        place = len(value) - random.randint(1, (len(value) + 1) // 2)  # one digit of the lower half
        return value[:place] + random.choice("123456789".replace(value[place], "")) + value[place + 1 :]

    def stray(self, k: int, known: Sequence[str], random: Random) -> str:
        expression = self._wrong(k, known, random)
        left, op, right = expression.split()
        return f"{expression} = {joined(Fraction(left), op, Fraction(right)) or 0}"

    def call(self, k: int, known: Sequence[str], text: str) -> tuple[str, dict[str, str]]:
        return "calculator", {"expression": self._expression(k, known)}

    def stray_call(self, k: int, known: Sequence[str], random: Random) -> tuple[str, dict[str, str]]:
        return "calculator", {"expression": self._wrong(k, known, random)}

    def step(self, k: int, known: Sequence[str], has: frozenset[str]) -> dict[str, Any]:
        expression = re.sub(r"\bs\d+\b", r"{{from_step:\g<0>}}", self._expression(k, known))
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
        return last_number(one) is not None and last_number(one) == last_number(other)

    def _expression(self, k: int, known: Sequence[str]) -> str:
        left, op, right = self.problem.steps[k].split()
        values = {**{name: str(value) for name, value in self.problem.given.items()}}
        values |= {f"s{number}": value for number, value in enumerate(known, 1)}
        return f"{values.get(left, left)} {op} {values.get(right, right)}"

    def _wrong(self, k: int, known: Sequence[str], random: Random) -> str:
        left, op, right = self._expression(k, known).split()
        operands = sorted({str(value) for value in self.problem.given.values()} | {*known})
        right = random.choice([number for number in operands if number not in (left, right)])
        return f"{left} {random.choice([sign for sign in '+-*' if sign != op])} {right}"


class _Lookups(_Chain):
    """A question over documents."""

    tools = frozenset({"search", "open"})

    def __init__(self, hops: Hops) -> None:
        self.hops = hops
        self.count = len(hops.relations)

    def way(self, k: int) -> str:
        return f"s{k + 1} = {self._phrase(k, [])}"

    def asked(self, k: int, known: Sequence[str]) -> str:
        return f"What is the name of {self._phrase(k, known)}?"

    def value(self, k: int, known: Sequence[str]) -> str:
        at, relation = self._at(k, known), self.hops.relations[k]
        there = world().facts.get((relation.name, at))
        return there.name if there else "nobody knows"

    def said(self, k: int, known: Sequence[str], value: str) -> str:
        return _fact(self.hops.relations[k], self._at(k, known), value)

    def found(self, k: int, known: Sequence[str], text: str) -> str | None:
        at, relation = self._at(k, known), self.hops.relations[k]
        told = re.findall(rf"{re.escape(self.asked(k, known))}\s+result: ([^\n]+)", text)
        there = facts_in(text).get((relation.name, at))
        return there.name if there else told[-1].strip() if told else None

    def other(self, value: str, k: int, random: Random) -> str:
        kind = self.hops.relations[k].to
        names = sorted({there.name for there in world().facts.values() if there.kind == kind} - {value})
        return random.choice(names)

    def stray(self, k: int, known: Sequence[str], random: Random) -> str:
        relation = random.choice([one for one in RELATIONS if one.of in ("bridge", "river")])
        things = sorted(thing for name, thing in world().facts if name == relation.name)
        thing = random.choice(things)
        return _fact(relation, thing, world().facts[relation.name, thing].name)

    def call(self, k: int, known: Sequence[str], text: str) -> tuple[str, dict[str, str]]:
        at = self._at(k, known)
        title = title_of(at)
        listed = re.search(rf"(?:^|→ )\d+\. {re.escape(title)}:", text, re.M)
        return ("open", {"title": title}) if listed else ("search", {"query": at.shown.removeprefix("the ")})

    def stray_call(self, k: int, known: Sequence[str], random: Random) -> tuple[str, dict[str, str]]:
        return "search", {"query": random.choice(sorted(world().documents))}

    def step(self, k: int, known: Sequence[str], has: frozenset[str]) -> dict[str, Any]:
        relation = self.hops.relations[k]
        if k <= len(known):
            phrase = self._phrase(k, known)
        else:
            phrase = relation.asked.format(x=Thing(relation.of, f"{{{{from_step:s{k}}}}}").shown)
        step: dict[str, Any] = {
            "title": f"find {relation.name}",
            "instruction": f"What is the name of {phrase}?",
        }
        if self.tools <= has:
            return {**step, "type": "composite", "toolHints": ["search", "open"]}
        return {**step, "type": "analysis"}

    def same(self, one: str, other: str) -> bool:
        return bare_name(one) == bare_name(other)

    def _at(self, k: int, known: Sequence[str]) -> Thing:
        return self.hops.start if k == 0 else Thing(self.hops.relations[k].of, known[k - 1])

    def _phrase(self, k: int, known: Sequence[str]) -> str:
        relation = self.hops.relations[k]
        if k == 0:
            return relation.asked.format(x=self.hops.start.shown)
        return relation.asked.format(x=self._at(k, known).shown if len(known) >= k else f"s{k}")


class _Mind:
    """What the agent makes of one prompt. text: the conversation."""

    def __init__(self, agent: SimAgent, chain: _Chain, text: str, random: Random) -> None:
        self.agent = agent
        self.chain = chain
        self.text = text
        self.random = random
        self.known = chain.known(text)

    # Thoughts and answers.

    def proposed(self, count: int, *, listed: bool) -> str:
        """Next steps, as JSON or one alone."""
        steps = [self._next() for _ in range(count)]
        return json.dumps(steps) if listed else steps[0]

    def _next(self) -> str:
        k, chain, random = len(self.known), self.chain, self.random
        if _PLANNING.search(self.text):
            return self._way_on()
        if not self._chooses(k):
            return chain.stray(min(k, chain.count - 1), self.known, random)
        if k == chain.count:
            return f"Answer: {self.known[-1]}"
        value = chain.found(k, self.known, self.text)
        return chain.said(k, self.known, value or self._in_head(k, self.known, self.agent.unaided))

    def _way_on(self) -> str:
        planned = self._planned(self.text)
        if planned == self.chain.count:
            return f"Then the answer is s{planned}."
        if self._chooses(planned):
            return self.chain.way(planned)
        return self.chain.way(self.random.randrange(self.chain.count)).replace("s1 =", "s0 =")

    def _planned(self, text: str) -> int:
        """How many steps of the right way `text` names, from the first."""
        ways = map(self.chain.way, range(self.chain.count))
        return next((k for k, way in enumerate(ways) if way not in text), self.chain.count)

    def answered(self, *, aloud: bool) -> str:
        """A whole answer from what is known."""
        unaided = self.agent.unaided if aloud else self.agent.unaided**2
        values, lines = self._finished(unaided)
        answer = f"Answer: {values[-1]}"
        return "\n".join([*lines, answer]) if aloud else answer

    def _finished(self, unaided: float) -> tuple[list[str], list[str]]:
        """The rest done in the head: all values, and the steps that say them."""
        values, lines = list(self.known), list[str]()
        while len(values) < self.chain.count:
            k = len(values)
            value = self._in_head(k, values, unaided if self._chooses(k) else 0.0)
            lines.append(self.chain.said(k, values, value))
            values.append(value)
        return values, lines

    def _in_head(self, k: int, known: Sequence[str], unaided: float) -> str:
        value = self.chain.value(k, known)
        right = self.random.random() < unaided
        return value if right else self.chain.other(value, k, self.random)

    def _chooses(self, k: int) -> bool:
        """Whether it sees what is to be done in place `k`."""
        told = k < self.chain.count and self.chain.way(k) in self.text
        blind = (1 - self.agent.skill) ** (2 if told else 1)
        return self.random.random() >= blind

    # Judgements.

    def believes(self, before: str, candidate: str) -> bool:
        """Whether it thinks that `candidate` is a right step after `before`."""
        return self._is_right(before, candidate) != (self.random.random() < self.agent.noise)

    def score(self, before: str, candidate: str) -> float:
        """0–1; 1 for an answer that it takes for right."""
        if not self.believes(before, candidate):
            return round(self.random.uniform(0.0, 0.3), 2)
        return 1.0 if final_answer(candidate) is not None else round(self.random.uniform(0.7, 0.95), 2)

    def _is_right(self, before: str, candidate: str) -> bool:
        chain, right = self.chain, self.chain.right()
        stated = final_answer(candidate)
        if stated is not None:
            return chain.same(stated, right[-1])
        planned = self._planned(before)
        if (
            self._planned(f"{before}\n{candidate}") > planned
            or candidate == f"Then the answer is s{chain.count}."
        ):
            return True
        known, now = chain.known(before), chain.known(f"{before}\n{candidate}")
        return len(now) > len(known) and now == right[: len(now)]

    # Acting.

    def acted(self, call: Call) -> str:
        """One turn of a loop: a tool call, or an answer."""
        offered, k = _offered(call), len(self.known)
        last = _LAST_TURN.search(call.messages[-1].content)
        if last or not self.chain.tools & offered:
            return self._final(offered, self._finished(self.agent.unaided)[0][-1])
        if self._chooses(k):
            if k == self.chain.count:
                return self._final(offered, self.known[-1])
            return _wish(*self.chain.call(k, self.known, self.text))
        return self._slip(call, offered)

    def looked_up(self, call: Call) -> str:
        """A tool call before a proposal, "" when none is needed."""
        k = len(self.known)
        needless = k == self.chain.count or self.chain.found(k, self.known, self.text) is not None
        if needless or not self.chain.tools & _offered(call) or _PLANNING.search(self.text):
            return ""
        if self._chooses(k):
            return _wish(*self.chain.call(k, self.known, self.text))
        return _wish(*self.chain.stray_call(k, self.known, self.random)) if self.random.random() < 0.5 else ""

    def _slip(self, call: Call, offered: frozenset[str]) -> str:
        """A wrong turn: the last call again, one that brings nothing, or an answer too soon."""
        k = min(len(self.known), self.chain.count - 1)
        asked = [wish for message in call.messages for wish in message.tool_calls]
        turn = self.random.choice(("again", "stray", "hasty"))
        if turn == "again" and asked and asked[-1].name in offered:
            return _wish(asked[-1].name, read_json(asked[-1].arguments) or {})
        if turn != "hasty":
            return _wish(*self.chain.stray_call(k, self.known[:k], self.random))
        guess = self._finished(self.agent.unaided**2)[0][-1]
        return self._final(offered, self.chain.other(guess, self.chain.count - 1, self.random))

    def _final(self, offered: frozenset[str], answer: str) -> str:
        return _wish(FINAL, {"answer": answer}) if FINAL in offered else f"Answer: {answer}"

    # Looking back.

    def criticised(self) -> str:
        """SATISFIED or UNSATISFIED, with a lesson."""
        given = _GIVEN.search(self.text)
        answer = (given[1] if given else final_answer(self.text)) or ""
        right = self.chain.same(answer, self.chain.right()[-1])
        if right == self._sees():
            return f"SATISFIED: I checked the steps, and {answer} follows from them."
        lesson = self.chain.way(self.random.randrange(self.chain.count))
        if self._sees():
            lesson = "\n".join(map(self.chain.way, range(self.chain.count)))
        return (
            f"UNSATISFIED: {answer or 'no answer'} does not follow. Look each step up; the way is\n{lesson}"
        )

    def reviewed(self) -> str:
        """Whether a plan has reached its goal, and the answer."""
        known = self.chain.known(_filled(self.text))
        if len(known) == self.chain.count and self._sees():
            return f"SATISFIED: all that was asked for is known.\nAnswer: {known[-1]}"
        if len(known) == self.chain.count or self._sees():
            lacking = self.chain.way(min(len(known), self.chain.count - 1))
            return f"UNSATISFIED: this is still to be found out: {lacking}"
        values, _ = self._finished(self.agent.unaided)
        return f"SATISFIED: it is done.\nAnswer: {values[-1]}"

    def _sees(self) -> bool:
        return self.random.random() < (1 + self.agent.skill) / 2

    def reflected(self) -> str:
        """Where the work stands."""
        k = len(self.known)
        lacking = self.chain.way(k) if k < self.chain.count and self._chooses(k) else "give the answer"
        return f"{k} of {self.chain.count} things are known; the course is right.\nNext: {lacking}"

    def synthesized(self) -> str:
        """What is known, and no more."""
        lines = [self.chain.said(k, self.known, value) for k, value in enumerate(self.known)]
        return "\n".join(["Known so far:", *lines]) if lines else "Nothing is known yet."

    def routed(self) -> str:
        """The kind of task."""
        kinds = ("simple", "steps", "open", "writing")
        right = "simple" if self.chain.count == 1 else "steps"
        kind = right if self.random.random() < self.agent.skill else self.random.choice(kinds)
        return json.dumps({"kind": kind})

    # Plans.

    def planned(self) -> str:
        """Steps for what is not known yet, numbered on from those that there are."""
        first = len(set(_LISTED.findall(self.text)))
        known = self.chain.known(_filled(self.text))
        begin = min(len(known), self.chain.count - 1)
        return self._steps([(k, f"s{first + k - begin + 1}") for k in range(begin, self.chain.count)], known)

    def patched(self) -> str:
        """The steps that are not completed, written anew, or others in their place."""
        if "Write other steps in place" in self.text:
            return self.planned()
        known = self.chain.known(_filled(self.text))
        places = enumerate(_OPEN.findall(self.text), len(known))
        return self._steps([(min(k, self.chain.count - 1), id) for k, id in places], known)

    def _steps(self, places: Sequence[tuple[int, str]], known: Sequence[str]) -> str:
        """Steps for the things in `places`, each with the id that it gets."""
        ids = {f"s{k + 1}": id for k, id in reversed(places)}
        steps = []
        for k, id in places:
            step = self.chain.step(k, known, _named_tools(self.text))
            step = step if self._chooses(k) else self._misplanned(step, k, known)
            told = _REFERENCE.sub(
                lambda match: f"{{{{from_step:{ids.get(match[1], match[1])}}}}}", json.dumps(step)
            )
            steps.append({"id": id, **json.loads(told)})
        return json.dumps({"steps": steps})

    def _misplanned(self, step: dict[str, Any], k: int, known: Sequence[str]) -> dict[str, Any]:
        """A step that cannot go well: it computes something else, or opens a title that it guesses."""
        if step["type"] == "analysis":
            return {**step, "instruction": "Think about it."}
        if step["type"] == "composite":
            name = known[k - 1] if 0 < k <= len(known) else f"{{{{from_step:s{k}}}}}"
            name = name if k else self.chain.call(0, [], "")[1]["query"]
            return {**step, "type": "tool_call", "toolName": "open", "toolArgs": {"title": name}}
        values = [*known, *("1" for _ in range(k - len(known)))]
        return {**step, "toolArgs": self.chain.stray_call(k, values, self.random)[1]}

    def analysed(self) -> str:
        """One step of a plan, done in the head."""
        asked = re.findall(r"Calculate (\d+ [-+*/] \d+)", self.text)
        question = hops_in(self.text[max(self.text.rfind("What is the name of"), 0) :])
        part: _Chain | None = None
        if isinstance(self.chain, _Sums) and asked:
            left, op, right = asked[-1].split()
            part = _Sums(Problem({"a": int(left), "b": int(right)}, (f"a {op} b",)))
        elif question is not None:
            part = _Lookups(question)
        return _Mind(self.agent, part or self.chain, self.text, self.random)._finished(self.agent.unaided)[0][
            -1
        ]


# What a conversation says.


def _told(call: Call) -> str:
    """The conversation as one text, each tool result behind the call that it answers."""
    calls: dict[str, ToolCall] = {}
    told = []
    for message in call.messages:
        calls |= {wish.id: wish for wish in message.tool_calls}
        wish = calls.get(message.tool_call_id or "")
        asked = f"{wish.name}({wish.arguments})\n{wish.name} → " if wish else ""
        told.append(f"{asked}{message.content}")
    return "\n\n".join(told)


def _asking(call: Call) -> str:
    """The conversation before its first answer."""
    roles = [message.role for message in call.messages]
    end = roles.index("assistant") if "assistant" in roles else len(roles)
    return "\n\n".join(message.content for message in call.messages[:end])


def _chain_in(text: str) -> _Chain | None:
    """The first problem that `text` quotes."""
    problem, hops = problem_in(text), hops_in(text)
    return _Sums(problem) if problem else _Lookups(hops) if hops else None


def _form_of(call: Call, text: str) -> tuple[str, int]:
    """What is asked for, and how many of it."""
    if call.purpose in KINDS:
        return call.purpose, 1
    asking = without_candidates(text)
    for paragraph in reversed(asking.split("\n\n")):  # what stands above may quote another prompt
        for form, words in _FORMS:
            match = words.search(paragraph)
            if match is not None:
                return form, int(match[1]) if form == "propose" else 1
    return "", 1


def _offered(call: Call) -> frozenset[str]:
    return frozenset() if call.tool_choice == "none" else frozenset(tool["name"] for tool in call.tools)


def _named_tools(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"^- (calculator|search|open): ", text, re.M))


def _equation(expression: str) -> re.Pattern[str]:
    """How a conversation says what an expression is: as an equation, or as a tool's result."""
    return re.compile(
        rf"(?<![\d.]){re.escape(expression)}(?!\d)[\"'}}).\s]*(?:\d+\.\s+)?(?:calculator\s*)?"
        rf"(?:=|→|result:)\s*(-?\d+)(?![\d/]|\.\d)"
    )


def _filled(text: str) -> str:
    """`text` with references to steps replaced by what these gave."""
    results = dict(_RESULT.findall(text))
    return _REFERENCE.sub(lambda match: results.get(match[1], match[0]), text)


def _fact(relation: Relation, of: Thing, name: str) -> str:
    told = relation.told.format(x=of.shown, y=Thing(relation.to, name).shown)
    return told[0].upper() + told[1:]


def _candidate(text: str) -> tuple[str, str]:
    """What stands before a candidate, and the candidate."""
    before, _, rest = _CANDIDATES.sub("\0", text).partition("\0")
    return before, rest.strip().partition("\n\n")[0]


def _candidates(text: str) -> list[tuple[str, str]]:
    before, listed = _candidate(text)
    return [(before, one.strip()) for one in re.split(r"^\d+\. ", listed, flags=re.M)[1:]]


def _voted(text: str) -> list[tuple[str, str]]:
    parts = (
        part.partition("The candidate:\n") for part in re.split(r"^Candidate \d+$", text, flags=re.M)[1:]
    )
    return [(before, rest.partition("\n\n")[0].strip()) for before, _, rest in parts]


def _best(scores: Sequence[float]) -> str:
    return f"best: {scores.index(max(scores)) + 1}" if scores else "best: 1"


# What it writes.


def _wish(name: str, arguments: Mapping[str, Any]) -> str:
    """A tool call as text."""
    return json.dumps({"name": name, "arguments": arguments})
