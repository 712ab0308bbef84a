"""Process reward models that vLLM serves, in the formats of their authors.

Each class turns the conversation of a reward call into exactly the text, to the byte, that the code of the
model's authors gives the model. It computes the reward of each step from the response as that code does.
"""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tot_lab.core.calls import Call, Message, Need
from tot_lab.core.reading.values import finite
from tot_lab.models.chat.replies import usd
from tot_lab.models.connections import body_of
from tot_lab.models.openai_compatible.answers import Usage, page_of
from tot_lab.models.reward_servers import (
    ROUNDING,
    Solution,
    VLLMPooling,
    VLLMReward,
    data_of,
    each_of,
    not_readable,
    place_of_solution,
)
from tot_lab.models.stack import Failure

_Id = Annotated[int, Field(ge=0)]


class QwenPRM(VLLMPooling):
    """Qwen2.5-Math-PRM behind vLLM's `/pooling`, named `qwen_prm/NAME`. `<extra_0>` follows each step.

    A call without a system message gets that of the model card. Of the two classes, wrong and correct, the
    probability of the second is the reward of a step.

    References:
        Model card of Qwen/Qwen2.5-Math-PRM-7B; search-and-learn at 6f81cac, `Qwen_2_5_Math` (steps end at
        blank lines).
    """

    kind: ClassVar[str] = "qwen_prm"

    system: ClassVar[str] = "Please reason step by step, and put your final answer within \\boxed{}."

    def _body(self, solutions: list[Solution]) -> dict[str, Any]:
        (solution,) = solutions
        if not any(message.role == "system" for message in solution.before):
            solution = solution._replace(before=(Message("system", self.system), *solution.before))
        return super()._body([solution])


class _Labeller(VLLMReward):
    """A language model served by vLLM that labels each step with the token `+` or `-`.

    The reward of a step is p(+) / (p(+) + p(-)) in the distribution of the token after it. The prompt for a
    step includes all steps before it, so the total text sent grows with the square of the number of steps.
    vLLM processes shared prefixes once, unless prefix caching is turned off.
    """

    kind: ClassVar[str] = ""

    labels: Annotated[tuple[_Id, _Id], Field(strict=False)]
    """Ids of the tokens `+` and `-` in the vocabulary of the model."""

    def identity(self) -> dict[str, Any]:
        """Return the model, its revision, and the ids of the labels."""
        return {**super().identity(), "labels": list(self.labels)}

    def need(self, calls: Sequence[Call]) -> Need:
        """Return the most tokens of the prompts for all steps, and one output token for each."""
        need, place = super().need(calls), place_of_solution(calls[0])
        steps = 1 if place is None else calls[0].messages[place].content.count("\n\n") + 1
        prompt = steps * (need.prompt or 0)
        most = None if self.price is None else usd(self.price, prompt, steps)
        return Need(prompt + steps, most, prompt, price=need.price)

    @property
    def _per_step(self) -> bool:
        return True

    def _asked(self, alternatives: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a request for the log-probabilities of the two labels as next tokens.

        `alternatives` are the fields that request the likeliest tokens, for versions of vLLM that ignore
        `logprob_token_ids`.
        """
        return {
            "model": self.model,
            "max_tokens": 1,
            "temperature": 0,
            **alternatives,
            "logprob_token_ids": list(self.labels),
            "return_tokens_as_token_ids": True,
        }

    def _chances(self, page: Any, count: int) -> list[float]:
        """Return the reward of each of the `count` choices in a response. Raises `Failure`."""
        choices = page.get("choices") if isinstance(page, dict) else None
        return [self._chance(reported) for reported in each_of(choices, "logprobs", count)]

    def _chance(self, reported: Any) -> float:
        """Return p(+) / (p(+) + p(-)).

        A label that the server does not report is at most as likely as the least likely reported token. It
        counts as probability 0 if that changes the reward by less than `ROUNDING`, and is an error otherwise.
        """
        try:
            known = {str(token): finite(number) for token, number in self._alternatives(reported)}
        except (LookupError, TypeError, ValueError, AttributeError):
            known = {}
        numbers = [number for number in known.values() if number is not None]
        plus, minus = (known.get(f"token_id:{id}") for id in self.labels)
        found = [number for number in (plus, minus) if number is not None]
        if not found or len(numbers) < len(known) or max(numbers) > ROUNDING:
            raise not_readable(f"expected log-probabilities of tokens {self.labels}: got {reported!r:.200}")
        if len(found) == 1 and min(numbers) > found[0] + math.log(ROUNDING):
            raise not_readable(f"expected log-probabilities of both labels {self.labels}: got {known!r:.200}")
        good, bad = (0.0 if one is None else math.exp(one - max(found)) for one in (plus, minus))
        return good / (good + bad)

    @abstractmethod
    def _alternatives(self, reported: Any) -> list[tuple[Any, Any]]:
        """Return the reported next tokens after a step, each with its log-probability."""


class MathShepherd(_Labeller):
    """Math-Shepherd's process reward model behind vLLM's `/v1/completions`, named `math_shepherd/NAME`. `ки`
    follows each step.

    The model is trained on steps of one line each, which begin with `Step 1:`, `Step 2:`, and so on. For such
    solutions, set `split=r"\\n+"` of the evaluator `RewardModel`. The authors take the least reward of the
    steps as the reward of the solution, as the evaluator does with `aggregate="min"`.

    References:
        Model card of peiyi9979/math-shepherd-mistral-7b-prm; Wang et al. 2024, Math-Shepherd,
        arXiv:2312.08935, section 3.4 (least reward).
    """

    kind: ClassVar[str] = "math_shepherd"
    _path: ClassVar[str] = "completions"

    labels: Annotated[tuple[_Id, _Id], Field(strict=False)] = (648, 387)
    """Ids of the tokens `+` and `-` in the vocabulary of the model."""

    def _body(self, solutions: list[Solution]) -> dict[str, Any]:
        (solution,) = solutions
        steps = [f"{step} ки" for step in solution.steps]
        prompts = [f"{solution.question} " + "\n".join(steps[: k + 1]) for k in range(len(steps))]
        return {**self._asked({"logprobs": 20}), "prompt": prompts}

    def _rows(self, page: Any, solutions: list[Solution]) -> list[list[Any]]:
        return [self._chances(page, len(solutions[0].steps))]

    def _alternatives(self, reported: Any) -> list[tuple[Any, Any]]:
        return list(reported["top_logprobs"][0].items())


class RLHFlowPRM(_Labeller):
    """RLHFlow's process reward model behind vLLM's `/v1/chat/completions`, named `rlhflow_prm/NAME`. Each
    step is a message of the user, which the model answers with `+` or `-`.

    The first message is the problem and the first step. In the prompt for a later step, each earlier step is
    answered with `+`. The server applies the chat template of the model. Each step is a request of its own,
    since the API takes one conversation. The authors take the mean reward of the steps as the reward of the
    solution, as the evaluator `RewardModel` does with `aggregate="mean"`.

    References:
        RLHFlow/RLHF-Reward-Modeling, math-rm/README.md and prm_evaluate.py (model type `Deepseek`).
    """

    kind: ClassVar[str] = "rlhflow_prm"
    _path: ClassVar[str] = "chat/completions"

    labels: Annotated[tuple[_Id, _Id], Field(strict=False)] = (10, 12)
    """Ids of the tokens `+` and `-` in the vocabulary of the model."""

    async def _reported(self, solutions: list[Solution], options: dict[str, Any]) -> tuple[Any, Usage | None]:
        body = self._body(solutions)
        turns = body["messages"]
        ends = range(len(turns) - 2 * len(solutions[0].steps) + 2, len(turns) + 1, 2)
        asking = [self._page_for({**body, "messages": turns[:end]}, options) for end in ends]
        done = await asyncio.gather(*asking, return_exceptions=True)
        pages = [one for one in done if not isinstance(one, BaseException)]
        used = [usage for _, usage in pages if usage is not None]
        usage = Usage(sum(one.prompt for one in used), sum(one.output for one in used)) if used else None
        for one in done:
            if isinstance(one, Failure):
                one.usage = one.usage or usage
            if isinstance(one, BaseException):
                raise one
        return [page for page, _ in pages], usage

    def _body(self, solutions: list[Solution]) -> dict[str, Any]:
        (solution,) = solutions
        system = [message for message in solution.before if message.role == "system"]
        question = solution._replace(before=solution.before[len(system) :]).question
        first, *others = [step.strip() for step in solution.steps]
        turns = [Message("user", f"{question} {first}")]
        for step in others:
            turns += [Message("assistant", "+"), Message("user", step)]
        messages = [{"role": message.role, "content": message.content} for message in (*system, *turns)]
        return {**self._asked({"logprobs": True, "top_logprobs": 20}), "messages": messages}

    def _rows(self, page: Any, solutions: list[Solution]) -> list[list[Any]]:
        return [[chance for one in page for chance in self._chances(one, 1)]]

    def _alternatives(self, reported: Any) -> list[tuple[Any, Any]]:
        return [(one["token"], one["logprob"]) for one in reported["content"][0]["top_logprobs"]]


class SkyworkPRM(VLLMReward):
    """Skywork-o1-Open-PRM behind vLLM's `/pooling`, named `skywork_prm/NAME`. A line break follows each line.

    The model scores every line of a step, and the reward of the step is that of its last line: the sigmoid of
    the value at the line break after it. With `split=r"\\n+"` of the evaluator `RewardModel`, each line is a
    step with its own reward.

    The authors' code tokenizes each line by itself, so that no token spans a line break and the character
    before it. Here, the server's `/tokenize` does that, and `/pooling` then receives the token ids. The
    server must support the architecture `Qwen2ForPrmModel`, for which vLLM needs a plugin, and report a value
    for each token.

    References:
        SkyworkAI/skywork-o1-prm-inference at 719b56b, README.md and model_utils/io_utils.py; files
        special_tokens_map.json (`bos_token`) and added_tokens.json of the models.
    """

    kind: ClassVar[str] = "skywork_prm"
    _path: ClassVar[str] = "/pooling"

    @property
    def _per_step(self) -> bool:
        return True

    async def _reported(self, solutions: list[Solution], options: dict[str, Any]) -> tuple[Any, Usage | None]:
        (solution,) = solutions
        async with self._posted("/tokenize", self._body(solutions)) as response:
            page = page_of(await body_of(response))
        ids, ends = _by_line(page, solution)
        raw = {"use_activation": False, "activation": False}  # vLLM 0.11 reads the second name
        page, usage = await self._page_for({"model": self.model, "input": ids, **raw}, options)
        (values,) = each_of(data_of(page), "data", 1)
        if not isinstance(values, list) or len(values) != len(ids):
            got = len(values) if isinstance(values, list) else repr(values)[:100]
            raise not_readable(f"expected {len(ids)} values, one for each token: got {got}")
        return {"values": [values[end] for end in ends], "model": page.get("model")}, usage

    def _body(self, solutions: list[Solution]) -> dict[str, Any]:
        """Return the request to `/tokenize`. A special token separates the problem, the lines, and finally a
        lone line break, whose token id is used after each line.
        """
        (solution,) = solutions
        texts = [f"<|im_start|>{solution.question}\n", *_lines(solution), "\n"]
        return {"model": self.model, "prompt": _APART.join(texts), "add_special_tokens": False}

    def _rows(self, page: Any, solutions: list[Solution]) -> list[list[Any]]:
        values = [value[0] if isinstance(value, list) and value else value for value in page["values"]]
        numbers = [number for value in values if (number := finite(value)) is not None]
        if len(numbers) < len(values):
            raise not_readable(f"expected finite numbers: got {values!r:.100}")
        return [[_sigmoid(number) for number in numbers]]


_APART, _APART_ID = "<|im_end|>", 151645


def _lines(solution: Solution) -> list[str]:
    return [line for step in solution.steps for line in step.split("\n")]


def _by_line(page: Any, solution: Solution) -> tuple[list[int], list[int]]:
    """Read `page`, the response of `/tokenize`. Return the token ids of the problem and of all lines, each
    line with a line break after it, and the indexes of those line breaks that end a step.
    """
    tokens = page.get("tokens") if isinstance(page, dict) else None
    if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
        raise not_readable(f"expected a list of tokens: got {page!r:.100}")
    parts: list[list[int]] = [[]]
    for token in tokens:
        if token == _APART_ID:
            parts.append([])
        else:
            parts[-1].append(token)
    ids, *lines, newline = parts if len(parts) > 1 else [*parts, []]
    if len(lines) != len(_lines(solution)) or not newline:
        raise not_readable(f"expected {len(_lines(solution))} lines separated by {_APART}: got {len(lines)}")
    ends: list[int] = []
    for line in lines:
        ids += [*line, newline[-1]]
        ends.append(len(ids) - 1)
    counts = accumulate(len(step.split("\n")) for step in solution.steps)
    return ids, [ends[count - 1] for count in counts]


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))
