"""Reward models that vLLM or text-embeddings-inference serves over HTTP.

Each class turns the conversation of a reward call into a request, and the numbers in the response into a
reply that the evaluator `RewardModel` reads. Where the API takes a list, concurrent calls are merged into one
request. Rewards are never guessed: a missing value, a number outside 0 to 1 or a wrong number of values is an
error.

References:
    vLLM, docs/models/pooling_models/ (README.md for `/pooling`, reward.md, classify.md, scoring.md) and the
    classes of vllm/entrypoints/pooling/*/protocol.py; text-embeddings-inference 1.9.3, docs/openapi.json.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

from tot_lab.core.calls import Call, CallObserver, Message, Need
from tot_lab.core.reading.values import finite
from tot_lab.models.chat.replies import Answers, Choice, usd
from tot_lab.models.chat.served import ServedModel
from tot_lab.models.connections import body_of
from tot_lab.models.openai_compatible.answers import Usage, page_of, usage_of
from tot_lab.models.stack import NO_SERVER, Failure


class Solution(NamedTuple):
    """A solution to be scored: the conversation before it, and its steps."""

    before: tuple[Message, ...]
    steps: list[str]

    @property
    def question(self) -> str:
        """The messages before the solution, joined by blank lines."""
        return "\n\n".join(message.content for message in self.before)

    @property
    def text(self) -> str:
        """The steps, joined by blank lines."""
        return "\n\n".join(self.steps)

    def conversation(self, text: str) -> list[dict[str, str]]:
        """Return the messages of a chat. The last one is `text`, the solution as the model reads it."""
        messages = (*self.before, Message("assistant", text))
        return [{"role": message.role, "content": message.content} for message in messages]


class RewardServer(ServedModel):
    """A reward model on a server. The evaluator `RewardModel` calls it, as its setting `model`.

    The solution is the last message of the assistant, and its steps are separated by blank lines. Later
    messages, such as the instruction to a judge, and sampling settings are not sent. The call's `options` are
    added to the fields of the request. The reply is one reward, or a JSON list with a reward for each step.
    If the server reports several classes, the reply is a JSON object: `score` or `scores`, and `raw`, the
    probabilities of all classes.
    """

    kind: ClassVar[str] = ""
    _path: ClassVar[str] = ""
    generates: ClassVar[bool] = False

    def need(self, calls: Sequence[Call]) -> Need:
        """Return the most tokens that the prompt can have, and their cost. There are no output tokens."""
        need = super().need(calls)
        prompt = need.prompt or 0
        most = None if self.price is None else usd(self.price, prompt, 0)
        return Need(prompt, most, prompt, price=need.price)

    async def _answers(self, calls: Sequence[Call], observer: CallObserver) -> Answers:
        solutions = {call.messages: solution_of(call) for call in calls}  # samples of a reward are equal
        page, usage = await self._reported(list(solutions.values()), calls[0].options)
        try:
            each = self._rows(page, list(solutions.values()))
            texts = {messages: self._text(rows) for messages, rows in zip(solutions, each, strict=True)}
        except Failure as failure:
            failure.usage = usage
            raise
        choices = [Choice(texts[call.messages], None, None, ()) for call in calls]
        name = page.get("model") if isinstance(page, dict) else None
        return Answers(choices, name if isinstance(name, str) else None, usage)

    async def _reported(self, solutions: list[Solution], options: dict[str, Any]) -> tuple[Any, Usage | None]:
        """Return the response for `solutions`, as `_rows` reads it, and its usage. Raises `Failure`."""
        return await self._page_for(self._body(solutions), options)

    async def _page_for(self, body: dict[str, Any], options: dict[str, Any]) -> tuple[Any, Usage | None]:
        """Post `body` with `options`, and return the response as JSON and its usage. Raises `Failure`."""
        if taken := options.keys() & body.keys():
            raise Failure(
                f"options must hold further fields of the request: got {min(taken)!r}, which tot_lab sets"
            )
        async with self._posted(self._path, body | options) as response:
            page = page_of(await body_of(response))
            return page, self._usage(page, response.headers)

    def _usage_in(self, usage: dict[str, Any]) -> Usage | None:
        return usage_of(usage)

    def _text(self, rows: list[Any]) -> str:
        """Return the text of the reply for `rows` (see `_rows`). Raises `Failure` if they are not valid."""
        rows = [row if isinstance(row, list) else [row] for row in rows]
        rewards = [self._reward(row) for row in rows]
        if len({len(row) for row in rows}) > 1:
            raise not_readable(f"expected the same number of classes for each step: got {rows!r:.100}")
        several = len(rows[0]) > 1
        if self._per_step:
            return json.dumps({"scores": rewards, "raw": rows} if several else rewards)
        return json.dumps({"score": rewards[0], "raw": rows[0]} if several else rewards[0])

    def _reward(self, row: list[Any]) -> float:
        """Return the reward for the values of the classes. Raises `Failure` unless they are probabilities."""
        values = [number for value in row if (number := finite(value)) is not None]
        if not row or len(values) < len(row):
            raise not_readable(f"expected finite numbers: got {row!r:.100}")
        if not all(0 <= value <= 1 for value in values):
            raise not_readable(
                f"expected numbers from 0 to 1: got {row!r:.100}. Let the server apply its sigmoid or softmax"
            )
        if len(values) > 1 and abs(math.fsum(values) - 1) > ROUNDING:
            raise not_readable(f"expected probabilities that add up to 1: got {row!r:.100}")
        return self._chosen(values)

    def _chosen(self, values: list[float]) -> float:
        """Return the probability of the class that means correct. By default, only one class is allowed."""
        if len(values) > 1:
            raise not_readable(f"expected one number for each reward: got {values!r:.100}")
        return values[0]

    @property
    def _per_step(self) -> bool:
        """Whether each step has a reward of its own."""
        return False

    @abstractmethod
    def _body(self, solutions: list[Solution]) -> dict[str, Any]:
        """Return the request without options. Only classes with a `list_key` get several solutions."""

    @abstractmethod
    def _rows(self, page: Any, solutions: list[Solution]) -> list[list[Any]]:
        """Return a list of rows for each solution: one row per step, or a single one for the whole solution.
        A row is a number, or a list with a number for each class.
        """

    def _usage(self, page: Any, headers: Mapping[str, str]) -> Usage | None:
        """Return the usage in the response or its headers, or `None`."""
        return usage_of(page.get("usage")) if isinstance(page, dict) else None


ROUNDING = 0.01
"""Tolerance for the sum of the classes' probabilities, which servers compute in half precision."""


class VLLMReward(RewardServer):
    """A reward model that vLLM serves."""

    kind: ClassVar[str] = ""
    base_url: str = "http://localhost:8000/v1"
    _provider: ClassVar[str] = "vllm"
    _reports: ClassVar[Sequence[str]] = ("/version",)


class _Classes(VLLMReward):
    """A reward model for which vLLM reports the probability of each class."""

    kind: ClassVar[str] = ""

    correct: int = -1
    """Index of the class whose probability is the reward. -1 means the last one."""

    def identity(self) -> dict[str, Any]:
        """Return the model, its revision, and the class whose probability is the reward."""
        return {**super().identity(), "correct": self.correct}

    def _chosen(self, values: list[float]) -> float:
        try:
            return values[self.correct]
        except IndexError:
            raise not_readable(f"there is no class {self.correct} (`correct`): got {values!r:.100}") from None


class VLLMPooling(_Classes):
    """A reward model behind vLLM's `/pooling`, named `vllm_pooling/NAME`: process rewards, or an outcome
    reward.

    vLLM returns the probabilities of the classes (for Qwen2.5-Math-PRM: wrong, correct) at each step
    separator. Four published models need more than a separator: use `qwen_prm/`, `math_shepherd/`,
    `rlhflow_prm/` and `skywork_prm/` for their formats.

    References:
        vLLM, docs/models/pooling_models/reward.md; model card of Qwen2.5-Math-PRM-7B (separator).
    """

    kind: ClassVar[str] = "vllm_pooling"
    _path: ClassVar[str] = "/pooling"

    separator: str | None = "<extra_0>"
    """Text that ends each step. `None` is for a model that scores whole solutions. If such a model reports a
    value for each token, the value of the last token is the reward.
    """

    def identity(self) -> dict[str, Any]:
        """Return the model, its revision, the separator, and the class whose probability is the reward."""
        return {**super().identity(), "separator": self.separator}

    @property
    def _per_step(self) -> bool:
        return self.separator is not None

    def _body(self, solutions: list[Solution]) -> dict[str, Any]:
        (solution,), end = solutions, self.separator
        text = solution.text if end is None else "".join(step + end for step in solution.steps)
        return {"model": self.model, "messages": solution.conversation(text)}

    def _rows(self, page: Any, solutions: list[Solution]) -> list[list[Any]]:
        ((values,), (solution,)) = each_of(data_of(page), "data", 1), solutions
        if not isinstance(values, list) or not values:
            raise not_readable(f"expected a list of numbers: got {values!r:.100}")
        if self.separator is None:
            return [[values[-1] if isinstance(values[-1], list) else values]]
        if len(values) != len(solution.steps):
            raise not_readable(
                f"expected {len(solution.steps)} rewards, one for each step: got {len(values)}"
            )
        return [values]


class VLLMClassify(_Classes):
    """An outcome reward model behind vLLM's `/classify`, named `vllm_classify/NAME`.

    References:
        vLLM, docs/models/pooling_models/classify.md.
    """

    kind: ClassVar[str] = "vllm_classify"
    _path: ClassVar[str] = "/classify"

    def _body(self, solutions: list[Solution]) -> dict[str, Any]:
        (solution,) = solutions
        return {"model": self.model, "messages": solution.conversation(solution.text)}

    def _rows(self, page: Any, solutions: list[Solution]) -> list[list[Any]]:
        return [each_of(data_of(page), "probs", 1)]


class VLLMScore(VLLMReward):
    """A cross-encoder behind vLLM's `/score`, named `vllm_score/NAME`: it scores each solution with its
    question.

    References:
        vLLM, docs/models/pooling_models/scoring.md; examples/online_serving/openai_cross_encoder_score.py (a
        text and a list). All versions of vLLM accept `text_1` and `text_2`.
    """

    kind: ClassVar[str] = "vllm_score"
    _path: ClassVar[str] = "/score"

    def list_key(self, call: Call) -> Hashable | None:
        return _question_key(call)

    def _body(self, solutions: list[Solution]) -> dict[str, Any]:
        texts = [solution.text for solution in solutions]
        return {"model": self.model, "text_1": solutions[0].question, "text_2": texts}

    def _rows(self, page: Any, solutions: list[Solution]) -> list[list[Any]]:
        return [[score] for score in each_of(data_of(page), "score", len(solutions))]


class VLLMLikelihood(VLLMReward):
    """A language model behind vLLM's `/v1/completions`, named `vllm_likelihood/NAME`, which rewards likely
    steps.

    The reward of a step is the geometric mean of the probabilities of the tokens that begin in it, given the
    question and the steps before it. The evaluator `Likelihood` reads the probabilities in the reply that
    proposed a thought; this model scores any text, including that of another model. The texts are sent
    without a chat template.

    References:
        OpenAI API reference, Completions (`echo`, `logprobs`); vLLM, vllm/entrypoints/openai (protocol and
        serving of completions).
    """

    kind: ClassVar[str] = "vllm_likelihood"
    _path: ClassVar[str] = "completions"

    @property
    def _per_step(self) -> bool:
        return True

    def list_key(self, call: Call) -> Hashable | None:
        return _options_key(call)

    def _body(self, solutions: list[Solution]) -> dict[str, Any]:
        prompts = [f"{solution.question}\n\n{solution.text}" for solution in solutions]
        return {"model": self.model, "prompt": prompts, "echo": True, "max_tokens": 0, "logprobs": 0}

    def _rows(self, page: Any, solutions: list[Solution]) -> list[list[Any]]:
        choices = page.get("choices") if isinstance(page, dict) else None
        reported = each_of(choices, "logprobs", len(solutions))
        return [_likelihoods(one, solution) for one, solution in zip(reported, solutions, strict=True)]


def _likelihoods(reported: Any, solution: Solution) -> list[float]:
    """Return the geometric mean of the token probabilities of each step. `reported` is the field `logprobs`
    of a choice in the response.
    """
    reported = reported if isinstance(reported, dict) else {}
    tokens, logprobs = reported.get("tokens"), reported.get("token_logprobs")
    if not (isinstance(tokens, list) and isinstance(logprobs, list) and len(tokens) == len(logprobs)):
        raise not_readable(f"expected a log-probability for each token: got {reported!r:.100}")
    text = "".join(map(str, tokens))
    if not text.endswith(solution.text):  # tokens that split a character do not join to the text
        raise not_readable(f"the tokens do not spell the solution: got {text[-100:]!r}")
    begins = list(accumulate((len(str(token)) for token in tokens), initial=0))
    rows: list[float] = []
    begin = len(text) - len(solution.text)
    for step in solution.steps:
        end = begin + len(step)
        numbers = [
            finite(logprob) for place, logprob in zip(begins, logprobs, strict=False) if begin <= place < end
        ]
        known = [number for number in numbers if number is not None]
        if not known or len(known) < len(numbers) or max(known) > 0:
            raise not_readable(f"expected log-probabilities of {step!r:.50}: got {numbers!r:.100}")
        rows.append(math.exp(math.fsum(known) / len(known)))
        begin = end + len("\n\n")
    return rows


class _TEI(RewardServer):
    """A model on a server of text-embeddings-inference (TEI), which serves a single model."""

    kind: ClassVar[str] = ""
    base_url: str = "http://localhost:8080"
    _provider: ClassVar[str] = "tei"
    _reports: ClassVar[Sequence[str]] = ("/info",)

    async def problem(self) -> str | None:
        """Return a message if the server does not answer or serves another model, else `None`."""
        try:
            status, page = await self.look("/info")
        except Failure as failure:
            refused = failure.connection_failed
            return NO_SERVER.format(self.address, self.name, "base_url") if refused else None
        served = page.get("model_id") if status == 200 and isinstance(page, dict) else None
        if served is None or self.model in (served, page.get("served_model_name")):
            return None
        return f"The server at {self.address} has no model {self.model}: got {served}"

    def _usage(self, page: Any, headers: Mapping[str, str]) -> Usage | None:
        tokens = headers.get("x-compute-tokens", "")
        return Usage(int(tokens), 0) if tokens.isascii() and tokens.isdigit() and len(tokens) < 16 else None


class TEIRerank(_TEI):
    """A cross-encoder behind text-embeddings-inference's `/rerank`, named `tei_rerank/NAME`.

    The server serves a single model, which must have the given name. A solution that is too long for the
    model is an error; it is not truncated.

    References:
        text-embeddings-inference 1.9.3, docs/openapi.json (`/rerank`, `/info`).
    """

    kind: ClassVar[str] = "tei_rerank"
    _path: ClassVar[str] = "/rerank"

    def list_key(self, call: Call) -> Hashable | None:
        return _question_key(call)

    def _body(self, solutions: list[Solution]) -> dict[str, Any]:
        texts = [solution.text for solution in solutions]
        return {"query": solutions[0].question, "texts": texts, "truncate": False}

    def _rows(self, page: Any, solutions: list[Solution]) -> list[list[Any]]:
        return [[score] for score in each_of(page, "score", len(solutions))]


class TEIPredict(_TEI):
    """A classifier behind text-embeddings-inference's `/predict`, named `tei_predict/NAME`. It gets the
    question and the solution as a pair.

    The server serves a single model, which must have the given name. In `raw`, the other classes are sorted
    by label, and the probability of `correct` comes last.

    References:
        text-embeddings-inference 1.9.3, docs/openapi.json (`/predict`, `/info`).
    """

    kind: ClassVar[str] = "tei_predict"
    _path: ClassVar[str] = "/predict"

    correct: str | None = None
    """Label of the class whose probability is the reward. `None` is only for a model with a single class."""

    def identity(self) -> dict[str, Any]:
        """Return the model, its revision, and the class whose probability is the reward."""
        return {**super().identity(), "correct": self.correct}

    def _body(self, solutions: list[Solution]) -> dict[str, Any]:
        (solution,) = solutions
        return {"inputs": [solution.question, solution.text], "truncate": False}

    def _rows(self, page: Any, solutions: list[Solution]) -> list[list[Any]]:
        try:
            scores = {str(entry["label"]): entry["score"] for entry in page}
        except (LookupError, TypeError):
            scores = {}
        if not scores or len(scores) < len(page):
            raise not_readable(f"expected a label and a score for each class: got {page!r:.100}")
        correct = next(iter(scores)) if self.correct is None and len(scores) == 1 else self.correct
        if correct not in scores:
            classes = f"{sorted(scores)!r:.100}"
            raise not_readable(
                f"the setting `correct` must name one of the server's classes {classes}: got {correct!r}"
            )
        return [[[scores[label] for label in sorted(scores, key=lambda label: (label == correct, label))]]]

    def _chosen(self, values: list[float]) -> float:
        return values[-1]


def solution_of(call: Call) -> Solution:
    """Return the solution in `call`: the last message of the assistant. Raises `Failure` without one."""
    place = place_of_solution(call)
    if place is None:
        raise Failure(
            "a call to a reward model must have a solution, as a message of the assistant: got none. Pass "
            "a reward model to an evaluator: tl.TreeOfThoughts(evaluate=tl.evaluators.RewardModel(model=…))"
        )
    return Solution(call.messages[:place], call.messages[place].content.split("\n\n"))


def place_of_solution(call: Call) -> int | None:
    """Return the index in `call.messages` of the last message of the assistant, or `None`."""
    places = reversed(range(len(call.messages)))
    return next((place for place in places if call.messages[place].role == "assistant"), None)


def data_of(page: Any) -> Any:
    return page.get("data") if isinstance(page, dict) else None


def _question_key(call: Call) -> Hashable | None:
    """Return the options of `call` and the messages before its solution, or `None` without a solution."""
    place = place_of_solution(call)
    return None if place is None else (call.messages[:place], _options_key(call))


def _options_key(call: Call) -> Hashable | None:
    """Return the options of `call` as text, or `None` if `call` has no solution."""
    return None if place_of_solution(call) is None else repr(sorted(call.options.items()))


def each_of(entries: Any, name: str, count: int) -> list[Any]:
    """Return the field `name` of each of `entries`, ordered by their `index`. Raises `Failure` unless there
    are `count` entries with the indexes 0 to `count` - 1.
    """
    if not isinstance(entries, list) or len(entries) != count:
        got = f"{len(entries)} entries" if isinstance(entries, list) else repr(entries)[:100]
        expected = "one entry" if count == 1 else f"{count} entries"
        raise not_readable(f"expected {expected}: got {got}")
    found: dict[int, Any] = {}
    for entry in entries:
        index = entry.get("index") if isinstance(entry, dict) and name in entry else None
        if type(index) is not int or not 0 <= index < count or index in found:
            place = "index 0" if count == 1 else f"an index from 0 to {count - 1} that no other entry has,"
            raise not_readable(f"expected an entry with {place} and {name}: got {entry!r:.100}")
        found[index] = entry[name]
    return [found[index] for index in range(count)]


def not_readable(why: str) -> Failure:
    return Failure(f"the server's answer cannot be read: {why}", unreadable=True)
