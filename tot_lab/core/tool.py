"""Tools: typed Python functions that a model can call.

A tool is a part with settings, so the record of a run states which tools it had. A tool declares its
behaviour: `pure` if its result depends on its arguments alone and may be cached; `effects` for what it reads
or changes outside the process, which a policy can forbid.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar, overload

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, create_model, field_validator
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from tot_lab.core.parts import Part, UserFunction
from tot_lab.core.tools import ToolSpec, tool_name

M = TypeVar("M", bound=BaseModel)

CONTEXT = "tool_context"
"""A parameter of this name receives the lab's `tool_context`, and is hidden from the model."""


Name: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
Effects: TypeAlias = Annotated[tuple[str, ...], Field(strict=False)]


_CACHED_NAMES = {
    "max_characters": "most_characters",
    "max_bytes": "most_bytes",
    "max_redirects": "most_redirects",
    "max_file_mb": "written",
}
"""Names of settings in cache keys: those of version 0.1.0, so that old entries are found."""


class Tool(Part):
    """Base of all tools."""

    kind: ClassVar[str] = ""
    needs_permission: ClassVar[bool] = False
    """Whether a lab without an effect policy denies it. Other tools are then allowed."""
    name: Name
    """Name by which a model calls it: lowercase letters, digits and hyphens. By default the name of the
    function, with `_` as `-`."""

    description: str = ""
    """Description for the model: what the tool does and when to use it."""

    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    """JSON schema of its arguments, an object."""

    pure: bool = False
    """Whether equal arguments give equal results. The cache then stores the results, and a replay reads them
    from it. A function is identified by its source, so other data that it reads must not change.
    """

    effects: Effects | None = ()
    """Names of its effects, such as `network` or `files`; see `tl.EffectPolicy`. `None` means that they are
    not declared: a policy with an `allow_list` then allows the tool only by its name. For a tool made of a
    function, the default is `None`, or no effects if it is `pure`.
    """

    timeout: Annotated[float, Field(gt=0)] = 15.0
    """Time limit of one attempt, in seconds."""

    retries: Annotated[int, Field(ge=0)] = 1
    """Further attempts after an exception or a timeout. Use 0 for actions that must not happen twice. Still,
    a call that was in flight when its run was killed is repeated when the run resumes.
    """

    backoff: Annotated[float, Field(ge=0)] = 0.2
    """Seconds before the first further attempt, doubled for each later one."""

    max_characters: Annotated[int, Field(ge=100)] = 20_000
    """Characters after which a result is truncated, with a note that says so. A call may set another limit
    (`Call.max_tokens`).
    """

    output: bool = False
    """Whether it delivers the result of the work (writes the file, sends the message) instead of finding
    something out. `tl.ReAct` never blocks such a tool, and requests it once the search tools are done.
    """

    @field_validator("parameters")
    @classmethod
    def _describes_an_object(cls, schema: dict[str, Any]) -> dict[str, Any]:
        """Inline a top-level `$ref`: pydantic writes it for a recursive type, and providers refuse it."""
        if isinstance(reference := schema.get("$ref"), str):
            top = schema.get("$defs", {}).get(reference.rpartition("/")[2], {})
            schema = {**top, **{word: part for word, part in schema.items() if word != "$ref"}}
        if schema.get("type") != "object":
            raise ValueError(f"must be the JSON schema of an object with the arguments: got {schema!r:.80}")
        return schema

    @property
    def spec(self) -> ToolSpec:
        """The description of the tool for strategies and models."""
        return ToolSpec(
            name=self.name,
            description=self.description,
            parameters=self.parameters,
            effects=self.effects,
            output=self.output,
            aliases=self.aliases,
        )

    def settings(self) -> dict[str, Any]:
        """The settings as JSON-ready data. `output` is omitted if it has the default, as in older records."""
        settings = super().settings()
        if not self.output:
            del settings["output"]
        return settings

    def identity(self) -> dict[str, Any]:
        """The settings that can change a result, as part of the cache key."""
        changes_no_result = {"description", "timeout", "retries", "backoff", "pure", "effects", "output"}
        return {
            _CACHED_NAMES.get(name, name): value
            for name, value in self.settings().items()
            if name not in changes_no_result
        }

    @abstractmethod
    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> Any:
        """Return the result, or an awaitable of it: a string, or anything that JSON can hold.

        A method that is not async runs in a thread; an awaitable runs on the lab's event loop, which it must
        not block. The message of an exception is shown to the model. `Unfit`, which `fitting` raises, is not
        retried.
        """


class Arguments(BaseModel):
    """Base of a tool's arguments, validated in pydantic's lax mode: `"5"` is accepted as a number."""

    model_config = ConfigDict(extra="forbid")


class Unfit(ValueError):
    """Raised if a retry cannot help, as with invalid arguments. A model reads the message."""


def fitting(arguments: dict[str, Any], model: type[M]) -> M:
    """Validate `arguments` as a `model`. Raises `Unfit`."""
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors())
        raise Unfit(f"the arguments do not fit: {'; '.join(wrong)}") from None


class _Schema(GenerateJsonSchema):
    """JSON schemas without the titles of fields, which only repeat the names."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema_of(arguments: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of `arguments` that a language model is shown."""
    schema = arguments.model_json_schema(schema_generator=_Schema)
    for name in ("title", "description"):  # both describe the class, not the tool
        schema.pop(name, None)
    return schema


class FunctionTool(Tool):
    """A user's function as a tool; `@tl.tool` makes one."""

    kind = "function_tool"

    function: UserFunction
    """The function, recorded by name and source hash."""

    _accepted: _Accepted | None = PrivateAttr(default=None)

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> Any:
        if self._accepted is None:
            self._accepted = _Accepted(self.function)
        return self.function(**self._accepted.read(arguments, context))

    def __getstate__(self) -> dict[Any, Any]:
        """Drop the derived signature, which a worker process computes again."""
        state = super().__getstate__()
        return {**state, "__pydantic_private__": {"_accepted": None}}


class _Accepted:
    """The parameters of a function. Raises TypeError for parameters that a model cannot supply."""

    def __init__(self, function: UserFunction) -> None:
        self.names: dict[str, str] = {}
        self.described: set[str] = set()  # fields whose default is a pydantic `Field(…)`
        self.takes_context = False
        fields: dict[str, Any] = {}
        for parameter in _signature(function).parameters.values():
            if parameter.name == CONTEXT:
                self.takes_context = True
                continue
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise TypeError(
                    f"{function.name}: a tool takes arguments by name: got {parameter}. "
                    "Give each argument a parameter of its own, without `*`, `**` or `/`."
                )
            if parameter.annotation is parameter.empty:
                raise TypeError(
                    f"{function.name}: the parameter {parameter.name!r} has no type annotation. "
                    f"Write, for example, `{parameter.name}: str`."
                )
            field = f"argument_{len(fields)}"  # the parameter's own name may be reserved by pydantic
            self.names[field] = parameter.name
            if isinstance(parameter.default, FieldInfo):
                self.described.add(field)
            fields[field] = (
                parameter.annotation,
                ... if parameter.default is parameter.empty else parameter.default,
            )
        config = ConfigDict(extra="forbid", alias_generator=self.names.__getitem__)
        try:
            self.model: type[BaseModel] = create_model("Arguments", __config__=config, **fields)
            self.schema = schema_of(self.model)
        except PydanticUserError as error:
            raise TypeError(
                f"{function.name}: its arguments cannot be described as a JSON schema: {error}"
            ) from None

    def read(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments of the function. Parameters without a value keep their defaults."""
        given = fitting(arguments, self.model)
        values = {
            self.names[field]: getattr(given, field) for field in given.model_fields_set | self.described
        }
        return {**values, CONTEXT: context} if self.takes_context else values


def _signature(function: UserFunction) -> inspect.Signature:
    try:
        return function.signature
    except NameError as error:
        raise TypeError(
            f"{function.name}: {error}. The types of a tool must be defined in its module."
        ) from None


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(**settings: Any) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Make a tool of a typed function. Its signature gives the schema of the arguments, its docstring the
    description.

    Use `@tl.tool` or `@tl.tool(pure=True, timeout=5.0)`; `tl.Tool` documents the settings. The function may
    be `async`. A parameter named `tool_context` receives the lab's own data and is hidden from the model.

    Raises:
        TypeError: For a parameter without a type, or with a type that JSON cannot hold.
    """
    if function is None:
        return lambda function: _tool_of(function, settings)
    return _tool_of(function, settings)


def _tool_of(function: Callable[..., Any], settings: dict[str, Any]) -> FunctionTool:
    if isinstance(function, type):
        name = function.__name__
        raise TypeError(f"expected a function or a tool: got the class {name}. Pass {name}().")
    if not callable(function):
        raise TypeError(f"a tool must be a typed function: got {function!r}.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__qualname__}: a tool must return its result; this function yields.")
    given = UserFunction.of(function)
    accepted = _Accepted(given)
    made = FunctionTool(
        **{
            "name": tool_name(given.name.rpartition(".")[2]),
            "description": inspect.getdoc(function) or "",
            "parameters": accepted.schema,
            "function": given,
            "effects": () if settings.get("pure") else None,
            **settings,
        }
    )
    made._accepted = accepted
    return made
