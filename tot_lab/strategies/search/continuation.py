"""Step-wise generation: the model continues a reply that already contains the steps so far."""

from __future__ import annotations

from typing import Annotated, Any, Self

import msgspec
from pydantic import Field, field_validator, model_validator

from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.records import END_OF_REPLY
from tot_lab.core.task import Path, Task
from tot_lab.strategies.search.proposers import Proposer, Sample
from tot_lab.strategies.search.sampling import Count, Expansion, Prompt, Sampler

_Text = Annotated[str, Field(min_length=1)]


class Continue(Sample):
    """One step per call: the model continues its unfinished reply, which contains the steps so far, until a
    stop sequence ends the next step.

    The call is the prompt for the whole answer and, as last message, the unfinished reply (assistant
    prefill). The endpoint must continue this message: `tl.OpenAICompatible` asks its server to do so,
    DeepSeek does so, and many hosted models refuse such a call.

    A path is finished if the last line of its last step states an answer, or if the model ended its reply:
    with its end-of-sequence token, if the server distinguishes it from a stop sequence (vLLM, SGLang,
    llama.cpp), or with an empty continuation, which becomes an empty thought. In a domain with a `complete`
    of its own, only `complete` decides.

    References:
        Snell et al. 2024, Scaling LLM Test-Time Compute, arXiv:2408.03314, section 5 (search by steps against
        a process reward model); Beeching et al. 2024, search-and-learn (`separator`); its_hub,
        `StepGeneration` (`tokens_per_step`).
    """

    separator: _Text | Annotated[tuple[_Text, ...], Field(strict=False, min_length=1)] = "\n\n"
    """The text between steps, or several such texts. Each is a stop sequence and not part of the thoughts.
    The first one joins the steps in the unfinished reply."""

    tag: str = ""
    """Text that begins each step, with `{n}` for its number, such as `## Step {n}:`. The stop sequence is
    then the next step's tag instead of `separator`, which only joins the steps. "" means no tag."""

    tokens_per_step: Count | None = None
    """Tokens of a step. If it is set, only this limit or the end of the reply ends a step. The steps are then
    joined without a separator, and answers are read in the joined text. `None` means that a stop sequence
    ends a step."""

    prefill: str = ""
    """Text with which every reply begins, before the first step."""

    temperatures: Annotated[tuple[Annotated[float, Field(ge=0, le=2)], ...], Field(strict=False)] = ()
    """Sampling temperatures of the first step, the second, and so on. The last one applies to all further
    steps. Empty means `temperature` for all."""

    finish: bool = False
    """Whether one further call without a stop sequence completes the best path if the search ends without a
    finished path. No such call is made if a budget or `stop.nodes` is used up."""

    options: dict[str, Any] = {}
    """Further request parameters of calls that continue a reply, as the endpoint names them. vLLM through
    litellm needs `{"continue_final_message": True, "add_generation_prompt": False}`."""

    @field_validator("tag")
    @classmethod
    def _is_numbered(cls, tag: str) -> str:
        if tag and "{n}" not in tag:
            raise ValueError(f"tag must contain {{n}}, the number of the step: got {tag!r}.")
        return tag

    @model_validator(mode="after")
    def _has_one_end_of_step(self) -> Self:
        if self.tag and self.tokens_per_step is not None:
            raise ValueError(
                f"tag and tokens_per_step both end a step: got {self.tag!r} and {self.tokens_per_step}. Set "
                "one of them."
            )
        return self

    @property
    def asks_for_answer(self) -> bool:
        return True

    def to_the_end(self) -> Proposer | None:
        return _ToTheEnd(**{**dict(self), "count": 1})

    def finisher(self) -> Proposer | None:
        return self.to_the_end() if self.finish else None

    def _default_prompt(self, task: Task, path: Path) -> str:
        return task.domain.answer_prompt(task, True)

    def _call(self, purpose: str, sampler: Sampler, expansion: Expansion, prompt: Prompt) -> Call:
        call = super()._call(purpose, sampler, expansion, prompt)
        call = msgspec.structs.replace(call, stop=self._stops(expansion.depth), response_format=None)
        if self.tokens_per_step is not None:
            call = msgspec.structs.replace(call, max_tokens=self._most_tokens(call.max_tokens))
        if self.temperatures:
            temperature = self.temperatures[min(expansion.depth, len(self.temperatures) - 1)]
            call = msgspec.structs.replace(call, temperature=temperature)
        begun = self._begun(expansion.path)
        if not begun:
            return call
        options = {**call.options, **self.options}
        messages = (*call.messages, Message("assistant", begun))
        return msgspec.structs.replace(call, messages=messages, options=options)

    def _stops(self, depth: int) -> tuple[str, ...]:
        """The stop sequences of the step that follows `depth` others."""
        if self.tokens_per_step is not None:
            return ()
        if self.tag:
            return (self._tag(depth + 1),)
        return (self.separator,) if isinstance(self.separator, str) else self.separator

    def _most_tokens(self, most: int | None) -> int | None:
        return self.tokens_per_step

    def _tag(self, depth: int) -> str:
        return self.tag.replace("{n}", str(depth + 1))

    def _begun(self, path: Path) -> str:
        """The unfinished reply that the model continues."""
        if self.tokens_per_step is not None:
            return self.prefill + "".join(path)
        joint = self.separator if isinstance(self.separator, str) else self.separator[0]
        if not self.tag:
            return self.prefill + "".join(step + joint for step in path)
        steps = [f"{self._tag(k)} {step}{joint}" for k, step in enumerate(path)]
        return self.prefill + "".join(steps) + self._tag(len(path))

    def _step(self, task: Task, path: Path, reply: Reply) -> tuple[str | None, str]:
        text, is_whole = reply.text, True
        for stop in self._stops(len(path)):  # an endpoint may ignore stop sequences
            text, found, _ = text.partition(stop)
            is_whole = is_whole and not found
        is_empty = not text.strip()
        step = text if self.tokens_per_step is not None else text.strip()
        if reply.finish_reason == "length" and is_whole:
            if self.tokens_per_step is not None:  # a step of line breaks alone is continued, too
                return text or None, "open"
            return step if not is_empty else None, "cut"
        # Without stop sequences, only the model can have ended the reply.
        tells = reply.ended if self._stops(len(path)) else True
        ends = is_whole and reply.finish_reason in (None, "stop") and (tells or (tells is None and is_empty))
        if is_empty and not (ends and path and task.domain.is_text):
            return None, ""
        return "" if is_empty else step, END_OF_REPLY if ends else ""


class _ToTheEnd(Continue):
    """Writes the rest of a path in one call, without stop sequences."""

    def _stops(self, depth: int) -> tuple[str, ...]:
        return ()

    def _most_tokens(self, most: int | None) -> int | None:
        return most

    def _step(self, task: Task, path: Path, reply: Reply) -> tuple[str | None, str]:
        step, end = super()._step(task, path, reply)
        return step, "cut" if reply.finish_reason == "length" else end
