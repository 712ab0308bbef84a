"""The compute of a run: FLOPs of its model calls, and the time that it would take if it ran alone.

Both are computed from the records. A call takes 2 FLOPs for each parameter of its model and each token that
the model reads or writes. The numbers of parameters are those of `Run.params`. If they or the tokens are
unknown, so are the FLOPs. The time is that of the longest chain of calls that wait for each other.

References:
    Kaplan et al. 2020, Scaling Laws for Neural Language Models, arXiv:2001.08361, section 2.1 (2 FLOPs per
    parameter and token of a forward pass, without attention to the context).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import fsum
from typing import Any, NamedTuple, TypeAlias

from tot_lab.core.calls import Call, Message, Reply, is_made, refused
from tot_lab.core.purposes import role_of
from tot_lab.core.records import Line, Note, Position

Params: TypeAlias = Mapping[str, float | None]
"""Maps the name of a model, a call purpose or a role to the number of parameters of the model."""


class Flops(NamedTuple):
    """FLOPs of calls, `None` if the parameters of a model or the tokens of a call are unknown.

    Attributes:
        flops: FLOPs if every prompt is processed in full.
        flops_prefix_once: FLOPs on a server that caches all prefixes: the prefix that a prompt shares with an
            earlier call of the run to the same model (prompt and reply) is not processed again. The tokens of
            the prefix are estimated from its fraction of the characters of the prompt. Also `None` if the
            record lacks the prompts.
    """

    flops: float | None = None
    flops_prefix_once: float | None = None


class Compute(NamedTuple):
    """The compute of a run. The first two fields are the sums of `Flops` over its calls.

    Attributes:
        seconds_alone: The time of the longest chain of calls of models and tools that wait for each other,
            each from when it was last sent until its reply. The run would take this time without the other
            runs of a sweep: without waiting for a limit or a slot, and without failed tries. The time of the
            strategy itself does not count, but delays by a busy server do. `None` if the
            duration of a call is unknown, such as that of a cached reply.
    """

    flops: float | None
    flops_prefix_once: float | None
    seconds_alone: float | None


def compute_of(lines: Sequence[Line], params: Params, unknown: Iterable[str]) -> Compute:
    """The compute of a run.

    Args:
        lines: Its records.
        params: The numbers of parameters of its models.
        unknown: The kinds of data that the record lacks (`Header.unknown`).
    """
    calls = flops_by_call(lines, params, unknown).values()
    flops, once = (
        None if "calls" in unknown or None in amounts else fsum(filter(None, amounts))
        for amounts in ([call.flops for call in calls], [call.flops_prefix_once for call in calls])
    )
    timed = not {"calls", "times", "durations"} & {*unknown}
    return Compute(flops, once, _seconds_alone(lines) if timed else None)


def params_in(roles: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the numbers of parameters that the roles of a header state, `None` where none is stated.

    The key is the name of the role's model, `@ROLE` if the role holds the settings of its model, or the role
    if it has no model of its own.
    """
    params: dict[str, float | None] = {}
    for role, given in roles.items():
        model = given.get("model")
        name = f"@{role}" if isinstance(model, dict) else model or role
        params[name] = given.get("params", params.get(name))
    return params


def flops_by_call(lines: Sequence[Line], params: Params, unknown: Iterable[str]) -> dict[Position, Flops]:
    """The FLOPs of each model call that was made, by the position of the call."""
    replies = {line.p: line.e for line in lines if isinstance(line.e, Reply) and is_made(line.e)}
    if not any(params.values()):
        return dict.fromkeys(replies, Flops())
    calls = {line.p: line.e for line in lines if isinstance(line.e, Call)}
    replies = dict(sorted(replies.items()))
    made = [(calls[position], reply) for position, reply in replies.items()]
    sizes = [params_of(call, params) for call, _ in made]
    lacks_prompts = "prompts" in unknown
    repeated = [0.0] * len(made) if lacks_prompts else _repeated(made, sizes)
    found = []
    for (_, reply), size, share in zip(made, sizes, repeated, strict=True):
        read, written = reply.input_tokens, reply.output_tokens
        if _used_nothing(reply):
            read = written = 0
        if size is None or read is None or written is None:
            found.append(Flops())
        else:
            once = None if lacks_prompts else 2 * size * (read - round(read * share) + written)
            found.append(Flops(2 * size * (read + written), once))
    return dict(zip(replies, found, strict=True))


def _used_nothing(reply: Reply) -> bool:
    return reply.error is not None and reply.input_tokens is None


def params_of(call: Call, params: Params) -> float | None:
    """The number of parameters of the model of a call, `None` if unknown."""
    names = filter(None, (call.model, call.purpose, role_of(call.purpose)))
    return next((params[name] for name in names if name in params), None)


# Shared prefixes.


def _repeated(made: Sequence[tuple[Call, Reply]], sizes: Sequence[float | None]) -> list[float]:
    """The fraction of each prompt that is also the beginning of an earlier call (prompt and reply) to the
    same model. `sizes` are the numbers of parameters of the models.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, ((call, _), size) in enumerate(zip(made, sizes, strict=True)):
        groups.setdefault((call.model, size, repr(call.tools)), []).append(number)
    shares = [0.0] * len(made)
    for numbers in groups.values():
        prompts = [_text(made[number][0].messages) for number in numbers]
        wholes = [
            "" if _used_nothing(made[number][1]) else prompt + _continuation(*made[number])
            for number, prompt in zip(numbers, prompts, strict=True)
        ]
        for number, prompt, common in zip(numbers, prompts, _common_with_earlier(wholes), strict=True):
            shares[number] = min(common, len(prompt)) / max(len(prompt), 1)
    return shares


def _text(messages: Iterable[Message]) -> str:
    return "".join(f"\x1e{m.role}\n{m.content}{m.tool_calls or ''}" for m in messages)


def _continuation(call: Call, reply: Reply) -> str:
    """The reply of the model, as a later prompt repeats it. Empty for a reply with thinking: thinking is not
    sent back, so the later prompt has another prefix.
    """
    if reply.thinking:
        return ""
    begun = call.messages and call.messages[-1].role == "assistant"
    return reply.text if begun else _text([Message("assistant", reply.text, reply.tool_calls)])


def _common_with_earlier(texts: Sequence[str]) -> list[int]:
    """The length of the longest prefix that each text shares with an earlier text of the list.

    In sorted order, the longest prefix is shared with a neighbour. The texts are handled from the last to the
    first: each is compared with its neighbours and then removed, so that only earlier texts remain.
    """
    order = sorted(range(len(texts)), key=texts.__getitem__)
    ends = [-1, *order, -1]
    left, right = dict(zip(order, ends, strict=False)), dict(zip(order, ends[2:], strict=True))
    common = {a: _common(texts[a], texts[b]) for a, b in pairwise(order)}  # with the next text
    longest = [0] * len(texts)
    for number in reversed(range(len(texts))):
        before, after = left[number], right[number]
        with_before, with_after = common.get(before, 0), common.get(number, 0)
        longest[number] = max(with_before, with_after)
        right[before], left[after] = after, before
        common[before] = min(with_before, with_after)
    return longest


def _common(a: str, b: str) -> int:
    """The length of the longest common prefix."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# Time.


class _Branch:
    """Successive calls: their total duration, and the times of the first call and of the last reply."""

    __slots__ = ("first", "last", "seconds")

    def __init__(self, seconds: float, first: float, last: float) -> None:
        self.seconds = seconds
        self.first = first
        self.last = last

    def add(self, other: _Branch) -> None:
        """Append the calls of `other`."""
        self.seconds += other.seconds
        self.first = min(self.first, other.first)
        self.last = max(self.last, other.last)


_Branches: TypeAlias = dict[Position, _Branch]


def _seconds_alone(lines: Sequence[Line]) -> float | None:
    """The duration of the longest chain of calls. `None` if the duration of a call is unknown."""
    asked: dict[Position, float] = {}
    sent: dict[Position, float] = {}
    untimed: set[Position] = set()
    replies: list[Line] = []
    for line in lines:
        event = line.e
        if isinstance(event, Call):
            asked[line.p] = line.t
        elif isinstance(event, Reply):
            replies.append(line)
        elif isinstance(event, Note) and not line.p and "call" in event.data:
            if event.name == "call.sent":
                sent[tuple(event.data["call"])] = line.t
            elif event.name in ("call.cached", "call.joined", "call.queued"):
                untimed.add(tuple(event.data["call"]))
    if len(asked) > len(replies):
        return None
    levels: defaultdict[int, _Branches] = defaultdict(dict)  # by length of the position
    for reply in replies:
        place, first = reply.p, asked[reply.p]
        start = sent.get(place, first)
        if place not in sent and refused(reply.e.error):  # type: ignore[union-attr]
            start = reply.t  # a refused call takes no time
        elif place not in sent and place in untimed:
            return None
        _follow(levels[len(place)], place[:-1], _Branch(max(reply.t - start, 0.0), first, reply.t))
    for length in range(max(levels, default=1), 1, -2):
        ends: dict[Position, list[_Branch]] = {}
        for branch, whole in levels.pop(length).items():
            ends.setdefault(branch[:-1], []).append(whole)
        for gather, branches in ends.items():
            _follow(levels[length - 2], gather[:-1], _longest(branches))
    return levels[1][()].seconds if levels else 0.0


def _follow(branches: _Branches, branch: Position, step: _Branch) -> None:
    if branch in branches:
        branches[branch].add(step)
    else:
        branches[branch] = step


def _longest(branches: Sequence[_Branch]) -> _Branch:
    """The longest chain of branches of a `gather`. A branch follows another in the chain if its first call
    was made after the last reply of the other: it had to wait for the other branch.
    """
    ended = sorted(branches, key=lambda branch: branch.last)
    longest, waited, place = 0.0, 0.0, 0
    for branch in sorted(branches, key=lambda branch: branch.first):
        while ended[place].last < branch.first:
            waited = max(waited, ended[place].seconds)
            place += 1
        branch.seconds += waited  # from here on the duration of the chain
        longest = max(longest, branch.seconds)
    return _Branch(longest, min(branch.first for branch in branches), ended[-1].last)
