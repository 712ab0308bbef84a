"""Second implementations of published process reward models, and the server that they are compared with.

A toy stands in for the weights: tokens as of a vocabulary in which a word holds the space before it and a
full stop the line breaks after it, and logits that follow from all tokens up to a place. `score` of each
model does what the code of its authors does with a whole solution. The server sees requests alone. It answers
as vLLM does, by the place of the last token, of a separator, or of every token.

Sources: model cards of Qwen/Qwen2.5-Math-PRM-7B and peiyi9979/math-shepherd-mistral-7b-prm; search-and-learn
at 6f81cac, `reward_models.py`; RLHFlow/RLHF-Reward-Modeling, `math-rm/prm_evaluate.py`;
skywork-o1-prm-inference at 719b56b, `model_utils/io_utils.py`; vLLM, `protocol.py` of the APIs.
"""

import hashlib
import json
import math
import re
import zlib
from itertools import accumulate

from support.providers import Raw

OTHERS = range(900_000, 900_060)
"""Tokens that no text holds."""


class Toy:
    """A vocabulary, and the model that has it."""

    def __init__(self, special, known=()):
        self.special, self.known = special, dict(known)
        self.apart = re.compile("(" + "|".join(map(re.escape, special)) + ")")

    def encode(self, text):
        ids = []
        for part in self.apart.split(text):
            if part in self.special:
                ids.append(self.special[part])
                continue
            words = re.findall(r"[^\w\s]+\n*|\s*\n+|\s?\w+|\s", part)
            assert "".join(words) == part
            ids += [self.known.get(word, 200 + zlib.crc32(word.encode()) % 100_000) for word in words]
        return ids

    def logit(self, ids, of):
        """The logit of the token or class `of` after the tokens `ids`."""
        digest = hashlib.sha256(f"{ids} {of}".encode()).digest()
        number = int.from_bytes(digest[:6]) / 2**48
        return number - 9 if of in OTHERS else 10 * number - 5


def softmax(logits):
    powers = [math.exp(logit) for logit in logits]
    return [power / sum(powers) for power in powers]


def sigmoid(value):
    return 1 / (math.exp(-value) + 1)


QWEN = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}


class Qwen:
    kind, model = "qwen_prm", "Qwen/Qwen2.5-Math-PRM-7B"
    toy = Toy({**QWEN, "<extra_0>": 151651})
    separator = "\n\n"

    @classmethod
    def rendered(cls, messages):
        turns = [f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages]
        return "".join(turns)

    @classmethod
    def score(cls, question, answer):
        messages = [
            {
                "role": "system",
                "content": "Please reason step by step, and put your final answer within \\boxed{}.",
            },
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer.replace("\n\n", "<extra_0>") + "<extra_0>"},
        ]
        ids = cls.toy.encode(cls.rendered(messages))
        logits = [[cls.toy.logit(ids[: k + 1], label) for label in (0, 1)] for k in range(len(ids))]
        masked = [softmax(row) for token, row in zip(ids, logits, strict=True) if token == 151651]
        return [probabilities[1] for probabilities in masked]


class MathShepherd:
    kind, model = "math_shepherd", "peiyi9979/math-shepherd-mistral-7b-prm"
    toy = Toy({"<s>": 1}, {" ки": 12902, " +": 648, " -": 387})
    separator = "\n"

    @classmethod
    def score(cls, question, answer):
        output = "\n".join(f"{step} ки" for step in answer.split("\n"))
        ids = [1, *cls.toy.encode(f"{question} {output}")]
        logits = [[cls.toy.logit(ids[: k + 1], label) for label in (648, 387)] for k in range(len(ids))]
        return [softmax(row)[0] for token, row in zip(ids, logits, strict=True) if token == 12902]


class RLHFlow:
    kind, model = "rlhflow_prm", "RLHFlow/Llama3.1-8B-PRM-Deepseek-Data"
    special = {"<|begin_of_text|>": 128000, "<|start_header_id|>": 128006, "<|end_header_id|>": 128007}
    toy = Toy({**special, "<|eot_id|>": 128009}, {"+": 10, "-": 12, "\n\n": 271})
    separator = "\n\n"

    @classmethod
    def rendered(cls, messages, generation=False):
        header = "<|start_header_id|>{}<|end_header_id|>\n\n"
        turns = [f"{header.format(one['role'])}{one['content'].strip()}<|eot_id|>" for one in messages]
        return "<|begin_of_text|>" + "".join(turns) + header.format("assistant") * generation

    @classmethod
    def score(cls, question, answer):
        scores, conversation = [], []
        steps = [step.strip() for step in answer.split("\n\n")]
        for k, step in enumerate(steps):
            conversation.append({"content": f"{question} {step}" if k == 0 else step, "role": "user"})
            conversation.append({"content": "+", "role": "assistant"})
            ids = cls.toy.encode(cls.rendered(conversation))
            scores.append(softmax([cls.toy.logit(ids[: len(ids) - 2], label) for label in (10, 12)])[0])
        return scores


class Skywork:
    kind, model = "skywork_prm", "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B"
    toy = Toy(QWEN, {"\n": 198})
    separator = "\n"

    @classmethod
    def prepared(cls, question, answer):
        """The ids of the tokens, and which of them have a reward."""
        prompt = cls.toy.encode("<|im_start|>" + question + "\n")
        response, flags = [], [0] * len(prompt)
        newline = cls.toy.encode("\n")[-1]
        for step in answer.split("\n"):
            ids = cls.toy.encode(step) if step != "" else []
            ids += [newline]
            response += ids
            flags += [0] * (len(ids) - 1) + [1]
        return prompt + response, flags

    @classmethod
    def score(cls, question, answer):
        ids, flags = cls.prepared(question, answer)
        rewards = [cls.toy.logit(ids[: k + 1], "value") for k in range(len(ids))]
        return [sigmoid(reward) for reward, flag in zip(rewards, flags, strict=True) if flag]


PUBLISHED = (Qwen, MathShepherd, RLHFlow, Skywork)


class AsVLLM:
    """Answers as vLLM serves the models of `PUBLISHED`.

    Args:
        is_old: Whether it is a version that does not know `logprob_token_ids`.
    """

    def __init__(self, is_old=False):
        self.is_old = is_old

    def serve(self, server):
        server.pages |= {"/pooling": self.pooling, "/tokenize": self.tokenize}
        server.pages["/v1/completions"] = self.completions
        server.otherwise = lambda asked: Raw(json.dumps(self.chat(asked)))

    def tokenize(self, asked):
        assert asked.json["add_special_tokens"] is False
        tokens = model_of(asked).toy.encode(asked.json["prompt"])
        return {"count": len(tokens), "max_model_len": 4096, "tokens": tokens, "token_strs": None}

    def pooling(self, asked):
        model, body = model_of(asked), asked.json
        if model is Skywork:  # a value for each token
            ids = body["input"]
            values = [model.toy.logit(ids[: k + 1], "value") for k in range(len(ids))]
            rows = [[value if body["use_activation"] is False else sigmoid(value)] for value in values]
        else:  # of pooling type STEP
            ids = model.toy.encode(model.rendered(body["messages"]))
            places = [k + 1 for k, token in enumerate(ids) if token == 151651]
            rows = [softmax([model.toy.logit(ids[:end], label) for label in (0, 1)]) for end in places]
        data = [{"index": 0, "object": "pooling", "data": rows}]
        return {"id": "pool-1", "object": "list", "model": body["model"], "data": data} | used(len(ids))

    def completions(self, asked):
        prompts = [[1, *model_of(asked).toy.encode(prompt)] for prompt in asked.json["prompt"]]
        choices = []
        for index, ids in enumerate(prompts):
            top = self.alternatives(asked, ids, asked.json["logprobs"])
            token = next(iter(top))
            logprobs = {"tokens": [token], "token_logprobs": [top[token]], "top_logprobs": [top]}
            choices.append({"index": index, "text": "x", "logprobs": logprobs, "finish_reason": "length"})
        counts = used(sum(map(len, prompts)), len(prompts))
        return {"object": "text_completion", "model": asked.json["model"], "choices": choices} | counts

    def chat(self, asked):
        model, body = model_of(asked), asked.json
        assert body["messages"][-1]["role"] == "user"
        assert body["logprobs"] is True
        ids = model.toy.encode(model.rendered(body["messages"], generation=True))
        top = self.alternatives(asked, ids, body["top_logprobs"])
        entries = [{"token": token, "logprob": value, "bytes": None} for token, value in top.items()]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "x"},
            "logprobs": {"content": [{**entries[0], "top_logprobs": entries}]},
            "finish_reason": "length",
        }
        page = {"object": "chat.completion", "model": body["model"], "choices": [choice]}
        return page | used(len(ids), 1)

    def alternatives(self, asked, ids, count):
        """The log-probabilities of the labels, or of the likeliest tokens, after the tokens `ids`."""
        body, toy = asked.json, model_of(asked).toy
        assert body["max_tokens"] == 1
        assert body["return_tokens_as_token_ids"] is True
        labels = body["logprob_token_ids"]
        logits = {token: toy.logit(ids, token) for token in (*labels, *OTHERS)}
        total = math.log(sum(map(math.exp, logits.values())))
        ranked = sorted(logits, key=logits.get, reverse=True)
        named = ranked[:count] if self.is_old else dict.fromkeys([ranked[0], *labels])
        return {f"token_id:{token}": logits[token] - total for token in named}


def model_of(asked):
    (model,) = (one for one in PUBLISHED if one.model == asked.json["model"])
    return model


def used(prompt, output=0):
    return {"usage": {"prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output}}


AGGREGATES = {
    "last": lambda scores: scores[-1],
    "min": min,
    "mean": lambda scores: sum(scores) / len(scores),
    "product": lambda scores: [*accumulate(scores, float.__mul__)][-1],
}
