"""The tools of a lab, and how a tool call is carried out.

Every tool call gets a reply that a model can read. A tool runs in its own thread, with its own timeout and
retries. An exception or a timeout becomes an error message without secrets, and a long result is truncated.
In `replay` mode, a tool that has effects or is not pure is never called: the run stops if the result is
neither recorded nor cached. A tool with effects is not called with a secret in its arguments, because a tool
result may contain an instruction to send secrets, which a model may follow.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from pydantic_core import to_json

from tot_lab.core.calls import Call, CallObserver, Halt, Reply, format_error, readable
from tot_lab.core.parts import REGISTRY, UserFunction, class_of, known_names, needs_functions
from tot_lab.core.policy import EffectPolicy, written
from tot_lab.core.reading.json_values import json_of
from tot_lab.core.registry import built_in, import_parts, load_installed, names, offered
from tot_lab.core.scrubbing import holds_secret, scrubbed, secrets_in
from tot_lab.core.task import Domain
from tot_lab.core.tool import Tool, Unfit, tool
from tot_lab.core.tools import MODEL, TOOL_LIMITS, characters_within, tool_name

MAX_ERROR_CHARACTERS = 2_000
"""Maximum characters of an error message that a model reads."""


CLEANUP_SECONDS = 1.0
"""Seconds that a coroutine tool has to clean up after a timeout or cancellation."""


_HOLDS_SECRET = (
    "the arguments hold a secret (a key or a password of the lab or of its environment). The tool was not "
    "called. Leave the secret out; only an effect policy that allows 'secrets' lets it leave"
)


class NotReplayed(Halt):
    """In `replay` mode, a strategy called a tool that has effects or is not pure, and the result is neither
    recorded nor cached.
    """


class Toolbox:
    """The tools of a lab.

    Args:
        tools: Tools, names of tools, or functions, from which tools are made.
        policy: Effects that the tools may have. `None` allows all effects, but no tool that needs permission
            (`Tool.needs_permission`).
        context: Data that is passed to each tool with its arguments.

    Raises:
        ValueError: If the policy denies a tool, two tools have the same name, or a pure tool depends on more
            than its source.
        LookupError: If a tool was read from recorded settings, which do not contain its function.
    """

    def __init__(
        self,
        tools: Iterable[Tool | str | Callable[..., Any]] = (),
        policy: EffectPolicy | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(tools, str | Tool | Mapping) or not isinstance(tools, Iterable):
            raise TypeError(f"tools must be a list such as [tl.tools.Calculator()]: got {tools!r}.")
        if policy is not None and not isinstance(policy, EffectPolicy):
            raise TypeError(f"effect_policy must be a tl.EffectPolicy: got {policy!r}.")
        if context is not None and not isinstance(context, Mapping):
            raise TypeError(f"tool_context must be a dict: got {context!r}.")
        self.tools: dict[str, Tool] = {}
        self.policy = policy
        self.policy_settings: dict[str, Any] = {} if policy is None else policy.model_dump(mode="json")
        """The settings of the policy, as the header of a run contains them."""
        self.context = dict(context or {})
        for made in chain.from_iterable(map(_tools_of, tools)):
            if made.name in self.tools:
                raise ValueError(f"The names of tools must differ: got {made.name!r} twice.")
            if missing := needs_functions(made):
                raise LookupError(
                    f"The tool {made.name!r} was read from recorded settings, which do not contain its "
                    f"functions: {', '.join(missing)}. Pass the original tool to the lab."
                )
            _expect_distinguishable(made)
            if refusal := self._refusal(made):
                raise ValueError(
                    f"The tool {made.name!r} (effects: {written(made.effects)}) cannot be used: "
                    f"{refusal}. Leave it out, or pass an effect_policy that allows it."
                )
            self.tools[made.name] = made

    def named(self, name: str) -> Tool:
        """Return the tool with the name `name`. Raises LookupError if it is not found."""
        if name not in self.tools:
            raise LookupError(
                f"there is no tool {name!r}; there are {', '.join(sorted(self.tools)) or 'none'}"
            )
        return self.tools[name]

    def _refusal(self, tool: Tool) -> str | None:
        """Return why the policy denies `tool`, or `None`."""
        if self.policy is None:
            return EffectPolicy().refusal(tool.spec) if tool.needs_permission else None
        return self.policy.refusal(tool.spec)

    def carrying(self, tool: Tool, *, replaying: bool = False, keys: Sequence[str] = ()) -> Carrying:
        """Return the layer at the end of the stack (`tot_lab.models.stack`) that runs `tool`.

        Args:
            tool: The tool.
            replaying: Whether a call of a tool that has effects or is not pure raises `NotReplayed`.
            keys: Secrets of the lab. Like secrets in the environment and the context, they are removed from
                results, and refused in arguments unless the policy allows secrets.
        """
        guarded = _reaches_out(tool) and not (self.policy and self.policy.allows_secrets)
        return Carrying(tool, self.context, replaying, [*keys, *secrets_in(self.context)], guarded)


def _reaches_out(tool: Tool) -> bool:
    """Whether arguments of `tool` can leave the lab. `False` for a tool whose only effect is a model call."""
    return tool.effects is None or bool({*tool.effects} - {MODEL})


def _tools_of(given: Tool | str | Callable[..., Any]) -> tuple[Tool, ...]:
    if isinstance(given, str):
        return tools_named(given)
    return (given if isinstance(given, Tool) else tool(given),)


def _expect_distinguishable(tool: Tool) -> None:
    """Raise ValueError if `tool` is pure but a different tool could have the same cache key."""
    for name in type(tool).model_fields:
        function = getattr(tool, name)
        if tool.pure and isinstance(function, UserFunction) and not function.identified_by_source:
            raise ValueError(
                f"The tool {tool.name!r} cannot be pure: results of {function.name!r} may depend on more "
                f"than its source, which the cache cannot detect. Define it with `def` at module level, or "
                f"pass pure=False."
            )


class Carrying:
    """The layer at the end of the stack (`tot_lab.models.stack`) that runs one tool. If `guarded`, a call
    with a secret in its arguments fails. `Toolbox.carrying` describes the other arguments.
    """

    def __init__(
        self,
        tool: Tool,
        context: Mapping[str, Any],
        replaying: bool,
        keys: Sequence[str],
        guarded: bool = True,
    ) -> None:
        self.tool = tool
        self.context = context
        self.replaying = replaying
        self.keys = keys
        self.guarded = guarded

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the result of each of `calls`."""
        return [await self.reply(call, observer) for call in calls]

    async def reply(self, call: Call, observer: CallObserver) -> Reply:
        """Return the result of `call`. Raises `NotReplayed` if `replay` mode forbids it."""
        if self.replaying and (self.tool.effects or not self.tool.pure):
            why = f"has effects ({', '.join(self.tool.effects)})" if self.tool.effects else "is not pure"
            raise NotReplayed(
                f"The tool {self.tool.name!r} {why}, so mode='replay' does not carry it out. "
                f"run.replay() uses the results in the record of the run."
            )
        try:
            arguments = json_of(call.prompt or "{}")
        except ValueError as error:
            return self._failed(f"the arguments are no JSON: {error}")
        if not isinstance(arguments, dict):
            return self._failed(f"the arguments must be a JSON object, not {call.prompt[:80]}")
        if self.guarded and holds_secret(json.dumps(arguments, ensure_ascii=False), *self.keys):
            return self._failed(_HOLDS_SECRET)
        limits = {name: value for name, value in call.options.items() if name in TOOL_LIMITS}
        limited = Carrying(self.tool.with_(limits), self.context, self.replaying, self.keys, self.guarded)
        return await limited._tried(arguments, call.max_tokens, observer)

    async def _tried(self, arguments: dict[str, Any], most: int | None, observer: CallObserver) -> Reply:
        tool, wait = self.tool, self.tool.backoff
        for tries in range(1, tool.retries + 2):
            observer.note("call.sent", tries=tries, n=1)
            limit = asyncio.timeout(tool.timeout)
            try:
                async with limit:
                    return Reply(await self._carried_out(arguments, most), tool=tool.name)
            except Unfit as error:
                return self._failed(str(error))
            except Exception as error:
                reason = f"no result within {tool.timeout:g} s" if limit.expired() else format_error(error)
            if tries <= tool.retries:
                observer.note("call.retried", error=self._cut(reason, MAX_ERROR_CHARACTERS), wait=wait)
                await asyncio.sleep(wait)
                wait *= 2
        return self._failed(reason)

    async def _carried_out(self, arguments: dict[str, Any], most: int | None) -> str:
        """Return the result of the tool, which runs in its own thread, so that a hanging tool blocks nothing
        else.

        Python cannot end a thread, so a hanging thread remains until the process ends.

        Args:
            arguments: The arguments.
            most: Maximum tokens of the result. `None` means the tool's own limit.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def arrive(result: Any, error: Exception | None) -> None:
            if done.done():  # the call timed out or was cancelled
                _closed(result)
            elif error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

        def work() -> None:
            result, error = None, None
            try:
                result = self.tool.carry_out(arguments, self.context)
                if not inspect.isawaitable(result):
                    result = self._to_text(result, most)
            except BaseException as raised:  # even SystemExit ends only the tool
                error = _as_exception(raised)
            try:
                loop.call_soon_threadsafe(arrive, result, error)
            except RuntimeError:  # the loop was closed meanwhile
                _closed(result)

        threading.Thread(target=work, name=f"tool {self.tool.name}", daemon=True).start()
        try:
            result = await done
            return result if isinstance(result, str) else await _left_when_late(self._awaited(result, most))
        finally:  # a timeout may come before the result is awaited
            if done.done() and not done.cancelled() and done.exception() is None:
                _closed(done.result())

    async def _awaited(self, result: Awaitable[Any], most: int | None) -> str:
        try:
            return self._to_text(await result, most)
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as raised:  # it would otherwise end the event loop
            raise _as_exception(raised) from None

    def _to_text(self, result: Any, most: int | None) -> str:
        """Return a result of any type as text. It never fails, since the toolbox would then call the tool
        again.
        """
        try:
            text = result if isinstance(result, str) else to_json(result, **_ANY_FORM).decode()
        except ValueError:  # a lone surrogate
            text = ascii(result)
        return self._cut(text, self.tool.max_characters if most is None else characters_within(text, most))

    def _failed(self, why: str) -> Reply:
        return Reply(error=self._cut(why, MAX_ERROR_CHARACTERS), tool=self.tool.name)

    def _cut(self, text: str, most: int) -> str:
        more = len(text) - most
        text = scrubbed(readable(text[: 2 * most]), *self.keys)[:most]
        return f"{text}\n… ({more:,} more characters were cut)" if more > 0 else text


_ANY_FORM: Mapping[str, Any] = {
    "inf_nan_mode": "constants",  # NaN must not become null
    "bytes_mode": "base64",
    "serialize_unknown": True,  # values of other types become their `str`
}


async def _left_when_late(work: Coroutine[Any, Any, str]) -> str:
    """Await `work` and return its result. A cancellation also cancels `work`, and abandons it after
    `CLEANUP_SECONDS`.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    finally:
        # Marks its exception as retrieved.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        if task.cancel():
            await asyncio.wait([task], timeout=CLEANUP_SECONDS)
    return task.result()


def _as_exception(raised: BaseException) -> Exception:
    """Return an exception that a future accepts: `RuntimeError` for StopIteration, SystemExit and so on."""
    plain = isinstance(raised, Exception) and not isinstance(raised, StopIteration)
    return raised if plain else RuntimeError(repr(raised))  # type: ignore[return-value]


def _closed(result: Any) -> None:
    """Close `result` if it is a coroutine that has not started, which would otherwise warn."""
    if inspect.iscoroutine(result) and inspect.getcoroutinestate(result) == inspect.CORO_CREATED:
        result.close()


# Tools by name, for `tools=["calculator"]` and `--tools` of the command line. The name of a built-in tool
# gives that tool, and the name of a domain all tools of the domain. The entry point of an installed package
# is a tool class, a tool, a typed function, or a list of tools and functions. If a tool needs settings, the
# error names them.


def domain_tools() -> dict[str, tuple[Tool, ...]]:
    """Return the tools of each domain by the name of the domain. Domains of installed packages are included
    only if they are already imported.
    """
    import_parts()
    domains = {part.kind: part for part in REGISTRY.values() if issubclass(part, Domain)}
    return {kind: tools for kind, domain in domains.items() if (tools := domain.tools())}


def tools_named(name: str, settings: Mapping[str, Any] | None = None) -> tuple[Tool, ...]:
    """Return the tools with a name; `web-fetch` and `web_fetch` are the same name.

    Args:
        name: Name of a tool, of a domain, or of an entry point of an installed package.
        settings: Settings with which the tool is created.

    Raises:
        ValueError: If the name is unknown, or settings are missing or not accepted.
    """
    given = dict(settings or {})
    wanted = tool_name(name)
    for known, kind in built_in("tools").items():
        if wanted in map(tool_name, (known, *kind.aliases)):
            return (_made(kind, given),)
    if name in offered("domains") and (tools := class_of(name, Domain).tools()):
        return _as_they_are(name, tools, given)
    for domain, tools in domain_tools().items():
        if wanted == tool_name(domain):
            return _as_they_are(name, tools, given)
    found = load_installed(name)
    if found is None:
        raise ValueError(_unknown(name))
    value = found.value
    if isinstance(value, type) and issubclass(value, Tool):
        return (_made(value, given),)
    several = value if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(one, Tool) or inspect.isfunction(one) for one in several):
        raise ValueError(f"{name!r} must be a tool: got {found.source}.")
    return _as_they_are(name, tuple(one if isinstance(one, Tool) else tool(one) for one in several), given)


def needed(kind: type[Tool]) -> list[str]:
    """Return the names of the settings that have no default."""
    return [name for name, field in kind.model_fields.items() if field.is_required()]


def _made(kind: type[Tool], given: dict[str, Any]) -> Tool:
    missing = [name for name in needed(kind) if name not in given]
    if missing:
        more = " and ".join(f"{name}=…" for name in missing)
        raise ValueError(f"The tool {kind.kind!r} requires settings: {more} ({kind.__name__}).")
    return kind(**given)


def _as_they_are(name: str, tools: tuple[Tool, ...], given: dict[str, Any]) -> tuple[Tool, ...]:
    if given:
        raise ValueError(f"{name!r} names tools that accept no settings: got {', '.join(given)}.")
    return tools


def _unknown(name: str) -> str:
    known = [*names("tools"), *domain_tools()]
    return f"unknown tool {name!r}; {known_names(name, known)}"
