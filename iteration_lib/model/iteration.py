"""How does a user write an iteration?

    kmeans = Iteration("kmeans", params=KMeansParams)

    @kmeans.data
    def points(params): return parquet(params.input, columns=["features"])

    @kmeans.variable
    def centroids(points, params): ...

    @kmeans.map_buckets
    def sums(points, centroids): ...

    @kmeans.operator
    def moved(sums): ...

    kmeans.feedback(centroids=moved)

Every decorator returns the function as it was, so that each operator can be called and tested by itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar, overload

from iteration_lib.errors import DefinitionError
from iteration_lib.model.graph import Graph, build_graph
from iteration_lib.model.operator import Function, Kind, Operator, Role, parameters_of
from iteration_lib.model.params import NoParams

F = TypeVar("F", bound=Function)


class Iteration:
    """An iteration's definition: data streams, variables, operators, and what feeds back."""

    def __init__(self, name: str, *, params: type = NoParams) -> None:
        """Start a definition called `name`; `params` is a dataclass whose fields are the run's parameters."""
        if not dataclasses.is_dataclass(params):
            raise DefinitionError(name, f"params must be a dataclass, not {params!r}")
        self.name = name
        self.params = params
        self._operators: list[Operator] = []
        self._feedback: dict[str, str] = {}
        self._criteria: str | None = None
        self._outputs: dict[str, str] = {}

    def data(self, function: F) -> F:
        """Declare a data stream: read once per run, pinned, replayed in every epoch.

        The function returns a source (`parquet(...)`, `records(...)`) or, on Spark, a DataFrame.
        """
        return self._declare(function, role=Role.DATA, kind=Kind.DATA)

    @overload
    def variable(self, function: F) -> F: ...
    @overload
    def variable(self, *, operator_id: str | None = None, parallelism: int | None = None) -> Callable[[F], F]: ...
    def variable(
        self, function: F | None = None, *, operator_id: str | None = None, parallelism: int | None = None
    ) -> F | Callable[[F], F]:
        """Declare a variable; the function gives its value before epoch 0, of the kind of its feedback operator."""

        def declare(decorated: F) -> F:
            return self._declare(
                decorated, role=Role.VARIABLE, kind=Kind.VALUE, operator_id=operator_id, parallelism=parallelism
            )

        return declare if function is None else declare(function)

    @overload
    def operator(self, function: F) -> F: ...
    @overload
    def operator(self, *, operator_id: str | None = None, finishes: bool = False) -> Callable[[F], F]: ...
    def operator(
        self, function: F | None = None, *, operator_id: str | None = None, finishes: bool = False
    ) -> F | Callable[[F], F]:
        """Declare an operator on whole values: it runs in the driver, on blocks, with the rows in bucket order."""
        return self._operator(function, kind=Kind.VALUE, operator_id=operator_id, finishes=finishes)

    @overload
    def map_buckets(self, function: F) -> F: ...
    @overload
    def map_buckets(
        self, *, operator_id: str | None = None, finishes: bool = False, parallelism: int | None = None
    ) -> Callable[[F], F]: ...
    def map_buckets(
        self,
        function: F | None = None,
        *,
        operator_id: str | None = None,
        finishes: bool = False,
        parallelism: int | None = None,
    ) -> F | Callable[[F], F]:
        """Declare an operator that runs once per bucket on the executors; inputs without buckets are broadcast."""
        return self._operator(
            function, kind=Kind.BUCKETS, operator_id=operator_id, finishes=finishes, parallelism=parallelism
        )

    @overload
    def transform(self, function: F) -> F: ...
    @overload
    def transform(self, *, operator_id: str | None = None, finishes: bool = False) -> Callable[[F], F]: ...
    def transform(
        self, function: F | None = None, *, operator_id: str | None = None, finishes: bool = False
    ) -> F | Callable[[F], F]:
        """Declare an operator on DataFrames (Spark only): DataFrames in, one DataFrame out, evaluated lazily."""
        return self._operator(function, kind=Kind.FRAME, operator_id=operator_id, finishes=finishes)

    def feedback(self, **tails: Function) -> None:
        """Wire each variable to the operator whose result is its value in the next epoch."""
        self._feedback |= {variable: self._name_of(function) for variable, function in tails.items()}

    def criteria(self, function: Function) -> None:
        """Terminate the run after the first epoch in which this operator returns no records."""
        self._criteria = self._name_of(function)

    def output(self, **operators: Function) -> None:
        """Publish these operators' results of the last epoch; without any, the variables are published."""
        self._outputs |= {name: self._name_of(function) for name, function in operators.items()}

    def graph(self) -> Graph:
        """Return the checked wiring; raises DefinitionError with the operator's id."""
        return build_graph(
            self.name, self._operators, feedback=self._feedback, criteria=self._criteria, outputs=self._outputs
        )

    def _operator(
        self,
        function: F | None,
        *,
        kind: Kind,
        operator_id: str | None,
        finishes: bool,
        parallelism: int | None = None,
    ) -> F | Callable[[F], F]:
        def declare(decorated: F) -> F:
            return self._declare(
                decorated,
                role=Role.OPERATOR,
                kind=kind,
                operator_id=operator_id,
                finishes=finishes,
                parallelism=parallelism,
            )

        return declare if function is None else declare(function)

    def _declare(
        self,
        function: F,
        *,
        role: Role,
        kind: Kind,
        operator_id: str | None = None,
        finishes: bool = False,
        parallelism: int | None = None,
    ) -> F:
        if parallelism is not None and parallelism < 1:
            raise DefinitionError(
                self.name, f"parallelism is {parallelism}; it is at least 1", operator_id=function.__name__
            )
        inputs, injected = parameters_of(function)
        self._operators.append(
            Operator(
                operator_id=operator_id or function.__name__,
                name=function.__name__,
                role=role,
                kind=kind,
                function=function,
                inputs=inputs,
                injected=injected,
                finishes=finishes,
                parallelism=parallelism,
            )
        )
        return function

    def _name_of(self, function: Function) -> str:
        for operator in self._operators:
            if operator.function is function:
                return operator.name
        name = getattr(function, "__name__", repr(function))
        raise DefinitionError(self.name, f"{name!r} is not declared here; decorate it with @{self.name}.operator first")
