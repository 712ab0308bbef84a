"""Multi-agent debate: agents answer, read the answers of the others, and answer again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, NamedTuple

import msgspec
from pydantic import Field

from tot_lab.core.calls import Message, Reply, halts, stop_of
from tot_lab.core.protocol import Procedure, ask, emit, gather
from tot_lab.core.records import Thought, call_failed, parent_of
from tot_lab.core.strategy import Prompting
from tot_lab.core.task import Answer, Task
from tot_lab.strategies.voting import choose_by_vote


class Debate(Prompting):
    """Several agents answer. In each further round, each agent sees the last answers of the others and
    answers again. The answer is the most frequent one after the last round, the first in case of a tie.

    Each agent has a conversation of its own. An agent whose call fails keeps its last answer. The others are
    not shown anything of an agent that has no answer.

    Best for questions whose mistakes a reader notices. Trade-off: agents with one model tend to agree too
    soon. Calls: `agents` · `rounds`.

    The first thought of agent k is `at.k`. Each later thought of the agent is a child of the one before, and
    its sources are the thoughts of others that the agent was shown.

    References:
        Du et al. 2023, Improving Factuality and Reasoning in Language Models through Multiagent Debate,
        arXiv:2305.14325, section 2.
    """

    scale: ClassVar[str] = "agents"

    agents: Annotated[int, Field(ge=1)] = 3
    """The number of agents."""

    rounds: Annotated[int, Field(ge=1)] = 2
    """Rounds, the first answers included."""

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, parent_of(at), task.question)
        question = Message("user", task.answer_prompt(True))
        speakers = [_Speaker(k, (question,)) for k in range(self.agents)]
        for number in range(self.rounds):
            turns = [self._turn(at, number, speaker, speakers) for speaker in speakers]
            speakers = yield from gather(turns, at_most=1)
            if any(halts(speaker.error) for speaker in speakers):
                break
        answers = [speaker.answer(task) for speaker in speakers]
        return (yield from choose_by_vote(task, answers, "debate"))

    def max_calls(self, task: Task) -> int:
        return self.agents * self.rounds

    def _turn(
        self, at: str, number: int, speaker: _Speaker, speakers: Sequence[_Speaker]
    ) -> Procedure[_Speaker]:
        """Let `speaker` answer in round `number`. If it has answered before, it is shown the last thoughts of
        the others. Returns the speaker with its new thought, or with the error of its call."""
        others = [other.last for other in speakers if other.last and other.number != speaker.number]
        messages = speaker.messages
        if speaker.last:
            messages = (*messages, Message("assistant", speaker.last.text), Message("user", _shown(others)))
        node = speaker.last.id if speaker.last else at
        call = self.call(node, "answer", "", number * self.agents + speaker.number)
        reply: Reply = yield from ask(msgspec.structs.replace(call, messages=messages))
        if reply.error is not None:
            yield call_failed(node, "answer", reply.error)
            return speaker._replace(error=reply.error)
        id = f"{node}.0" if speaker.last else f"{at}.{speaker.number}"
        sources = tuple(other.id for other in others) if speaker.last else ()
        thought = yield from emit(Thought(id, node, reply.text, sources))
        return _Speaker(speaker.number, messages, thought)


class _Speaker(NamedTuple):
    """An agent: the messages that led to its last thought, and the error of its last call ("" if none)."""

    number: int
    messages: tuple[Message, ...]
    last: Thought | None = None
    error: str = ""

    def answer(self, task: Task) -> Answer:
        """The answer in its last thought."""
        if self.last is None:
            return Answer("", stop_of(self.error))
        return Answer(task.domain.read_answer(task, self.last.text) or "", "answered", self.last.id)


def _shown(others: Sequence[Thought]) -> str:
    """The user's message of a further round. If there are no answers of others, the agent is asked to check
    its own."""
    if not others:
        return "Check your answer, and then give it again in the same form."
    answers = "\n\n".join(f"<answer>\n{other.text}\n</answer>" for other in others)
    return (
        f"These are the answers of other agents to the same task:\n\n{answers}\n\n"
        "Use them as additional information, and give your answer again in the same form."
    )
