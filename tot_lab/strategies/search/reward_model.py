"""Evaluation by a reward model: one number for a path, or one for each of its steps."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Literal

import msgspec
from pydantic import field_validator

from tot_lab.core.calls import Message
from tot_lab.core.model_setting import ModelSetting, model_name
from tot_lab.core.protocol import Procedure, ask
from tot_lab.core.reading.json_values import find_json
from tot_lab.core.reading.scores import read_score, read_scores
from tot_lab.core.records import Event, Scored
from tot_lab.core.task import Path, Task
from tot_lab.strategies.search.evaluators import Evaluator
from tot_lab.strategies.search.sampling import (
    Sampler,
    checked_template,
    emit_as_list,
    failed,
    unreadable,
)

AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": lambda rewards: rewards[-1],
    "min": min,
    "product": math.prod,
    "mean": lambda rewards: math.fsum(rewards) / len(rewards),
}


class RewardModel(Evaluator):
    """Scores each thought by the reward of its path: an outcome reward, or the process rewards of its steps.

    The call, of purpose `reward`, is a conversation: `system`, the problem (user), the steps of the solution
    so far, separated by blank lines (assistant), and `instruction` (user). `split` defines the steps. The
    reply is one number from 0 to 1, or a JSON list with one number per step. The numbers are recorded as the
    samples of the thought. Any other reply, such as a list of another length or a logit, is unreadable.

    `model="qwen_prm/NAME"`, `math_shepherd/`, `rlhflow_prm/` and `skywork_prm/` are process reward models on
    vLLM in their published formats, and `vllm_pooling/` is one whose step separator can be set.
    `vllm_likelihood/` rewards each step by its likelihood under a language model. `vllm_classify/`,
    `vllm_score/`, `tei_rerank/` and `tei_predict/` are outcome reward models. These servers do not receive
    `instruction`.

    Each thought is a call of its own, and the calls of all children of a pick are made concurrently, so that
    a server can batch them. With `vllm_score/`, `vllm_likelihood/` and `tei_rerank/`, concurrent calls become
    one request.

    A function can wrap a reward model: `RewardModel(model=reward)` with `async def reward(call) -> str`. It
    finds the path in `call.messages` and returns the numbers as text. A model in this process that scores
    paths is an evaluator of its own, a function `(task, paths) -> scores`; see `BatchEvaluator`.

    References:
        Lightman et al. 2023, section 2.6 (`product`, `min`); Snell et al. 2024, section 5.1 (`last`).
    """

    kind: ClassVar[str] = "reward_model"

    model: ModelSetting = None
    """Name of a model or of one of the lab's roles, a model part, or a function `Call -> Reply | str`. `None`
    means the model of the strategy, else that of the role `evaluate`."""

    aggregate: Literal["last", "min", "product", "mean"] = "last"
    """How the rewards of the steps become one score. If the reply is one number for the whole path, this is
    the score."""

    prompt: str = "{problem}"
    """The message of the user, with the slots `{problem}` and `{steps}`. The default is the problem without
    the generator's instructions, which is what process reward models are trained on."""

    system: str = ""
    """The system message, with the slot `{system_prompt}` for the system prompt of the task. "" sends none:
    the system prompt of the task instructs the generator."""

    split: str | None = r"\n\s*\n"
    """A regular expression that matches what separates the steps of a solution. The default makes each
    paragraph a step, so that a whole solution is not rewarded as one step. `None` makes each thought of the
    path a step, without its blank lines."""

    instruction: str = (
        "Judge the solution so far. For each of its steps, separated by blank lines, state the probability "
        "that it is correct and leads to a correct answer. Reply only with a JSON list of these numbers from "
        "0 to 1, one per step and in order."
    )
    """The last message of the conversation. "" sends none, for a model that is trained to reward the
    conversation itself."""

    @field_validator("prompt")
    @classmethod
    def _shows_the_problem(cls, prompt: str) -> str:
        checked_template(prompt, ("problem", "steps"), ())
        if "{problem}" not in prompt:
            raise ValueError(
                f"prompt must contain {{problem}}: got {prompt!r}. An instruction without the problem "
                f"belongs in `system`."
            )
        return prompt

    @field_validator("split")
    @classmethod
    def _is_a_pattern(cls, split: str | None) -> str | None:
        if split is not None:
            try:
                groups = re.compile(split).groups
            except re.error as error:
                raise ValueError(f"split must be a regular expression: got {split!r} ({error}).") from None
            if groups:
                raise ValueError(f"split must have no capturing groups: got {split!r}. Write (?:…) instead.")
        return split

    def calls_per_thought(self, task: Task) -> int:
        return 1

    def score_thought(self, sampler: Sampler, path: Path, id: str) -> Procedure[list[Event]]:
        task = sampler.task
        prompt = sampler.prompt(self.prompt, path, partial(task.domain.statement, task))
        system = self.system.replace("{system_prompt}", task.system_prompt)
        call = sampler.call(id, "reward", path, prompt._replace(system=system), 0)
        steps = self._steps(path)
        messages = [*call.messages, Message("assistant", "\n\n".join(steps))]
        if self.instruction:
            messages.append(Message("user", self.instruction))
        model = call.model if self.model is None else model_name(self.model)
        reply = yield from ask(msgspec.structs.replace(call, messages=tuple(messages), model=model))
        if reply.error is not None:
            return (yield from emit_as_list(failed(id, reply.error)))
        rewards = read_rewards(reply.text, len(steps))
        if not rewards:
            yield unreadable(id, "reward", 0)
            return (yield from emit_as_list(Scored(id, None, None, (None,), self.kind)))
        score = AGGREGATES[self.aggregate](rewards)
        return (yield from emit_as_list(Scored(id, score, score, rewards, self.kind)))

    def _steps(self, path: Path) -> list[str]:
        """The steps of a path, without blank lines."""
        parts = path if self.split is None else re.split(self.split, "\n\n".join(path))
        steps = [_BLANK_LINES.sub("\n", part.strip("\n")) for part in parts if part.strip()]
        return steps or [""]


_BLANK_LINES = re.compile(r"\n\s*\n")


def read_rewards(text: str, steps: int) -> tuple[float, ...]:
    """The rewards that a reply states: one per step, or one for all steps. Empty if it cannot be read."""
    each = [reward for reward in read_scores(text, [""] * steps) if reward is not None]
    if len(each) == steps:
        return tuple(each)
    if any(isinstance(one.value, list) for one in find_json(text)):
        return ()  # a list of another length
    outcome = read_score(text)
    return () if outcome is None else (outcome,)
