"""Thoughts by several models or at several temperatures."""

from __future__ import annotations

import math
from typing import Annotated, Self, TypeVar

import msgspec
from pydantic import Field, model_validator

from tot_lab.core.calls import Call, Reply
from tot_lab.core.protocol import Procedure
from tot_lab.core.records import Event
from tot_lab.strategies.search.proposers import Around, Children, Proposer, Sample, WithTools
from tot_lab.strategies.search.sampling import Expansion, Sampler

T = TypeVar("T")
Temperature = Annotated[float, Field(ge=0, le=2)]


class Mixture(Around):
    """Cycles through models and temperatures: sample k uses model k modulo the number of models, and
    temperature k modulo the number of temperatures.

    A search may also choose the model and temperature of each pick: `members` maps names to proposers, for
    `Pick([id], 1, proposer=members[name])`. `ABMCTSA` and `ABMCTSM` choose by Thompson sampling.

    References:
        Inoue et al. 2025, AB-MCTS, arXiv:2503.04412, section 3.5 (Multi-LLM AB-MCTS); Wang et al. 2024,
        Mixture-of-Agents, arXiv:2406.04692.
    """

    models: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of models, or of roles of the lab. Empty means the model of the strategy."""

    temperatures: Annotated[tuple[Temperature, ...], Field(strict=False)] = ()
    """Sampling temperatures. Empty means that of `proposer`."""

    proposer: Proposer = Sample()
    """Makes the thoughts. For tools, write `WithTools(proposer=Mixture(…))`."""

    @model_validator(mode="after")
    def _is_inside_of_tools(self) -> Self:
        if isinstance(self.proposer, WithTools):
            raise ValueError("proposer must not be WithTools: write WithTools(proposer=Mixture(…)) instead.")
        return self

    @property
    def members(self) -> dict[str, Proposer]:
        turns = math.lcm(len(self.models) or 1, len(self.temperatures) or 1)
        members = [
            self.with_(models=_at(self.models, k), temperatures=_at(self.temperatures, k))
            for k in range(turns)
        ]
        return {member._name(): member for member in members}

    def _name(self) -> str:
        """The name of a member in `members`, such as `small, temperature 0.7`."""
        names = [*self.models, *(f"temperature {each:g}" for each in self.temperatures)]
        return ", ".join(names) or self.kind

    def grow(
        self, sampler: Sampler, expansion: Expansion, count: int, children: Children
    ) -> Procedure[list[Event]]:
        def asked(call: Call) -> Procedure[Reply]:
            for model in _at(self.models, call.sample_index):
                call = msgspec.structs.replace(call, model=model)
            for temperature in _at(self.temperatures, call.sample_index):
                call = msgspec.structs.replace(call, temperature=temperature)
            return sampler.ask(call)

        hottest = max(self.temperatures, default=sampler.temperature)
        asking = sampler._replace(ask=asked, temperature=hottest)
        return self.proposer.grow(asking, expansion, count, children)


def _at(values: tuple[T, ...], index: int) -> tuple[T, ...]:
    """The value at `index` modulo the number of values, as a tuple. Empty if there are no values."""
    return (values[index % len(values)],) if values else ()
