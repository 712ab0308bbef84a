"""Step-wise generation: the model continues a reply that already holds the steps so far."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from pydantic import Field

from tot_lab.core.calls import Call, Message
from tot_lab.core.task import Path, Task
from tot_lab.strategies.search.place import Place
from tot_lab.strategies.search.proposers import Sample
from tot_lab.strategies.search.sampling import Prompt, Sampler


class Continue(Sample):
    """One step per call: the request for the whole answer, a reply that holds the steps so far, and a stop
    text that ends the next step.

    The last message of the call is the unfinished reply (assistant prefill). The endpoint must continue it:
    `tl.OpenAICompatible` asks its server to, DeepSeek does, and many hosted models refuse it.

    References:
        Snell et al. 2024, Scaling LLM Test-Time Compute, arXiv:2408.03314, section 5 (search by steps against
        a process reward model).
    """

    separator: Annotated[str, Field(min_length=1)] = "\n\n"
    """Text between steps. It ends a call, and is no part of the thoughts."""

    options: dict[str, Any] = {}
    """Further settings of calls that continue a reply, under the names of the endpoint. vLLM through litellm
    needs `{"continue_final_message": True, "add_generation_prompt": False}`."""

    def _default_prompt(self, task: Task, path: Path) -> str:
        return task.domain.answer_prompt(task, True)

    def _call(self, purpose: str, sampler: Sampler, place: Place, prompt: Prompt) -> Call:
        call = super()._call(purpose, sampler, place, prompt)
        call = msgspec.structs.replace(call, stop=(self.separator,), response_format=None)
        if not place.path:
            return call
        begun = Message("assistant", "".join(step + self.separator for step in place.path))
        options = {**call.options, **self.options}
        return msgspec.structs.replace(call, messages=(*call.messages, begun), options=options)

    def _read(self, task: Task, path: Path, text: str) -> str | None:
        return text.partition(self.separator)[0].strip() or None
