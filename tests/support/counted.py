"""A model that names other tokens and another price in each reply, so that no two numbers can be swapped."""

from itertools import count

from support import Scripted
from tot_lab.core.calls import Call, Reply
from tot_lab.testing import answer_to


def counted() -> Scripted:
    numbers = count(1)

    def reply(call: Call) -> Reply:
        made, k = answer_to(call), next(numbers)
        made = Reply(made) if isinstance(made, str) else made
        # Powers of two make sums of costs exact, whatever their order.
        return Reply(
            made.text, tool_calls=made.tool_calls, input_tokens=100 + k, output_tokens=k * k, cost=k / 1024
        )

    return Scripted(reply)
