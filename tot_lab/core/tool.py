"""A tool: a typed Python function that a model can call.

Rule: a tool is a part with settings like any other, so that a record says what there was. What it
does to the world is declared: `pure` for one whose result depends on its arguments alone, which may
be remembered; `effects` for what it reaches or changes, which a policy can forbid.
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
"""A parameter of this name is handed the lab's `tool_context`, and no model sees it."""


Name: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
Effects: TypeAlias = Annotated[tuple[str, ...], Field(strict=False)]


class Tool(Part):
    """Base of all tools."""

    kind: ClassVar[str] = ""
    needs_permission: ClassVar[bool] = False
    """Whether it is denied where no effect policy allows it."""
    name: Name
    """Name by which a model calls it. `_` becomes `-`, and capitals become small."""

    description: str = ""
    """What it does and when to use it, for the model."""

    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    """JSON schema of its arguments, an object."""

    pure: bool = False
    """Whether equal arguments give equal results. The cache then keeps the results, and a replay reads them
    from there. A function is identified by its source, so other data that it reads must not change."""

    effects: Effects = ()
    """Names of what it reaches or changes; see `tl.EffectPolicy`."""

    timeout: Annotated[float, Field(gt=0)] = 15.0
    """Seconds for one try."""

    retries: Annotated[int, Field(ge=0)] = 1
    """Further tries after one that raised or timed out. Use 0 for what must not happen twice; a call that was
    in flight when a run was killed is still made again when the run resumes."""

    backoff: Annotated[float, Field(ge=0)] = 0.2
    """Seconds before the first further try, doubled for each one after it."""

    most_characters: Annotated[int, Field(ge=100)] = 20_000
    """Characters after which a result is cut, with a note that says so. A call may set another limit
    (`Call.max_tokens`)."""

    output: bool = False
    """Whether it delivers the result of the work (writes the file, sends the message) and finds nothing out.
    A loop never blocks such a tool, and asks for it once the search tools have done their part."""

    @field_validator("parameters")
    @classmethod
    def _tell_of_an_object(cls, schema: dict[str, Any]) -> dict[str, Any]:
        """That of a type that holds itself is a reference, which providers refuse at the top."""
        if isinstance(reference := schema.get("$ref"), str):
            top = schema.get("$defs", {}).get(reference.rpartition("/")[2], {})
            schema = {**top, **{word: part for word, part in schema.items() if word != "$ref"}}
        if schema.get("type") != "object":
            raise ValueError("must be the JSON schema of an object, whose properties are the arguments")
        return schema

    @property
    def spec(self) -> ToolSpec:
        """What strategies and models know of it."""
        return ToolSpec(
            name=self.name,
            description=self.description,
            parameters=self.parameters,
            effects=self.effects,
            output=self.output,
        )

    def settings(self) -> dict[str, Any]:
        """As for any part; `output` only where it differs from the default, as in records that lack it."""
        settings = super().settings()
        if not self.output:
            del settings["output"]
        return settings

    def identity(self) -> dict[str, Any]:
        """All that can change a result, for the cache."""
        changes_no_result = {"description", "timeout", "retries", "backoff", "pure", "effects", "output"}
        return {name: value for name, value in self.settings().items() if name not in changes_no_result}

    @abstractmethod
    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> Any:
        """The result, or an awaitable of it: a text, or anything that JSON can hold. Runs in a thread of
        its own, an awaitable on the lab's event loop, which it must not hold up. What it raises is told to
        the model; `Unfit`, which `fitting` raises, is not tried again."""


class Arguments(BaseModel):
    """What a tool is called with. Read as pydantic reads JSON: `"5"` is a number where one is wanted."""

    model_config = ConfigDict(extra="forbid")


class Unfit(ValueError):
    """Arguments that do not fit. The message says what is wrong with each, by its name."""


def fitting(arguments: dict[str, Any], model: type[M]) -> M:
    """`arguments` as a `model`. Raises `Unfit`."""
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors())
        raise Unfit(f"the arguments do not fit: {'; '.join(wrong)}") from None


class _Schema(GenerateJsonSchema):
    """Without titles, which tell a model nothing that the names do not."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema_of(arguments: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema that a model is shown."""
    schema = arguments.model_json_schema(schema_generator=_Schema)
    for name in ("title", "description"):  # the class is the tool's affair
        schema.pop(name, None)
    return schema


class FunctionTool(Tool):
    """A user's function as a tool; `@tl.tool` makes one."""

    kind = "function_tool"

    function: UserFunction
    """The function, which is recorded by name and source hash."""

    _accepted: _Accepted | None = PrivateAttr(default=None)

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> Any:
        if self._accepted is None:
            self._accepted = _Accepted(self.function)
        return self.function(**self._accepted.read(arguments, context))

    def __getstate__(self) -> dict[Any, Any]:
        """For a worker, which works out anew what the function takes."""
        state = super().__getstate__()
        return {**state, "__pydantic_private__": {"_accepted": None}}


class _Accepted:
    """What a function takes. Raises TypeError for what no model can give it."""

    def __init__(self, function: UserFunction) -> None:
        self.names: dict[str, str] = {}
        self.described: set[str] = set()  # whose default is pydantic's `Field(…)`, which is not the value
        self.takes_context = False
        fields: dict[str, Any] = {}
        for parameter in _signature(function).parameters.values():
            if parameter.name == CONTEXT:
                self.takes_context = True
                continue
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise TypeError(f"{function.name}: a tool takes arguments by name, and {parameter} is none")
            if parameter.annotation is parameter.empty:
                raise TypeError(
                    f"{function.name}: the parameter {parameter.name!r} has no type for a model to know"
                )
            field = f"argument_{len(fields)}"  # its own name may be one that pydantic keeps to itself
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
            raise TypeError(f"{function.name}: its arguments cannot be told to a model: {error}") from None

    def read(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
        """What to call the function with; defaults are its own affair."""
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
            f"{function.name}: {error}; the types of a tool must be known where its module is"
        ) from None


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(**settings: Any) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Make a typed function a tool: its signature gives the schema of the arguments, its docstring the
    description. `@tl.tool` or `@tl.tool(pure=True, timeout=5.0)`; for the settings see `tl.Tool`. It may be
    `async`. A parameter `tool_context` is handed the lab's own data, and no model sees it.

    Raises TypeError for a parameter without a type, or one that JSON cannot hold."""
    if function is None:
        return lambda function: _tool_of(function, settings)
    return _tool_of(function, settings)


def _tool_of(function: Callable[..., Any], settings: dict[str, Any]) -> FunctionTool:
    if isinstance(function, type):
        raise TypeError(f"{function.__name__} is a class; give a tool, such as {function.__name__}()")
    if not callable(function):
        raise TypeError(f"a tool is made of one typed function, not of {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__qualname__}: a tool returns its result, and this function yields")
    given = UserFunction.of(function)
    accepted = _Accepted(given)
    made = FunctionTool(
        **{
            "name": tool_name(given.name.rpartition(".")[2]),
            "description": inspect.getdoc(function) or "",
            "parameters": accepted.schema,
            "function": given,
            **settings,
        }
    )
    made._accepted = accepted
    return made
