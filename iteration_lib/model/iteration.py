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
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Literal, TypeAlias, TypeVar, overload

from iteration_lib.errors import DefinitionError
from iteration_lib.model.checkpointing import Checkpointing
from iteration_lib.model.graph import Graph, SinkDeclaration, build_graph
from iteration_lib.model.listener import Listener, ListenerEvent, listener_of
from iteration_lib.model.operator import Function, Kind, Operator, Role, StateScope, parameters_of
from iteration_lib.model.params import NoParams
from iteration_lib.model.wiring import is_plain

F = TypeVar("F", bound=Function)
Keeps: TypeAlias = Literal["carry", "fresh"]

_STEPS_OF_A_SINK = ("prepare", "commit", "abort")


class Iteration:
    """An iteration's definition: data streams, variables, operators, what feeds back, and who is told."""

    def __init__(
        self,
        name: str,
        *,
        params: type = NoParams,
        checkpointing: Checkpointing | None = None,
        open_ended: bool = False,
    ) -> None:
        """Start a definition called `name`; `params` is a dataclass whose fields are the run's parameters.

        An open-ended iteration ends only when nothing is fed back any more: it has no criteria, no `max_epochs` and no
        operator with state="fresh".
        """
        if not dataclasses.is_dataclass(params):
            raise DefinitionError(name, f"params must be a dataclass, not {params!r}")
        if open_ended and "max_epochs" in (field.name for field in dataclasses.fields(params)):
            raise DefinitionError(
                name, "is open-ended, so it has no last epoch; drop the parameter `max_epochs`, or open_ended=True"
            )
        self.name = name
        self.params = params
        self.checkpointing = checkpointing if checkpointing is not None else Checkpointing()
        self.open_ended = open_ended
        self._operators: list[Operator] = []
        self._listeners: list[Listener] = []
        self._feedback: dict[str, str] = {}
        self._criteria: str | None = None
        self._outputs: dict[str, str] = {}
        self._sinks: dict[str, SinkDeclaration] = {}

    @overload
    def data(self, function: F) -> F: ...
    @overload
    def data(self, *, operator_id: str | None = None, replays: bool = True) -> Callable[[F], F]: ...
    def data(
        self, function: F | None = None, *, operator_id: str | None = None, replays: bool = True
    ) -> F | Callable[[F], F]:
        """Declare a data stream: read once per run, pinned, replayed in every epoch.

        The function returns a source (`parquet(...)`, `records(...)`) or, on Spark, a DataFrame. With replays=False
        epoch 0 alone sees its rows; later ones see a stream of the same columns without rows. What is computed before
        epoch 0 sees them too. On Spark it is called where a `transform` is.
        """
        make = partial(Operator, role=Role.DATA, kind=Kind.DATA, replays=replays)
        return self._declare(function, make, operator_id=operator_id)

    @overload
    def variable(self, function: F) -> F: ...
    @overload
    def variable(self, *, operator_id: str | None = None, parallelism: int | None = None) -> Callable[[F], F]: ...
    def variable(
        self, function: F | None = None, *, operator_id: str | None = None, parallelism: int | None = None
    ) -> F | Callable[[F], F]:
        """Declare a variable; the function gives its value before epoch 0, of the kind of its feedback operator."""
        make = partial(Operator, role=Role.VARIABLE, kind=Kind.VALUE, parallelism=parallelism)
        return self._declare(function, make, operator_id=operator_id)

    @overload
    def operator(self, function: F) -> F: ...
    @overload
    def operator(
        self,
        *,
        operator_id: str | None = None,
        finishes: bool = False,
        state: Keeps | None = None,
        capture: bool = True,
    ) -> Callable[[F], F]: ...
    def operator(
        self,
        function: F | None = None,
        *,
        operator_id: str | None = None,
        finishes: bool = False,
        state: Keeps | None = None,
        capture: bool = True,
    ) -> F | Callable[[F], F]:
        """Declare an operator on whole values: it runs in the driver, on blocks, with the rows in bucket order.

        With state="carry" it takes `state` and returns (result, new state); with state="fresh" it takes `scratch`. With
        capture=False its result is computed again when an epoch is retried, also where others' are kept.
        """
        make = partial(Operator, role=Role.OPERATOR, kind=Kind.VALUE, finishes=finishes, capture=capture)
        return self._declare(function, make, operator_id=operator_id, state=state)

    @overload
    def map_buckets(self, function: F) -> F: ...
    @overload
    def map_buckets(
        self,
        *,
        operator_id: str | None = None,
        finishes: bool = False,
        parallelism: int | None = None,
        state: Keeps | None = None,
        capture: bool = True,
    ) -> Callable[[F], F]: ...
    def map_buckets(
        self,
        function: F | None = None,
        *,
        operator_id: str | None = None,
        finishes: bool = False,
        parallelism: int | None = None,
        state: Keeps | None = None,
        capture: bool = True,
    ) -> F | Callable[[F], F]:
        """Declare an operator that runs once per bucket on the executors; inputs without buckets are broadcast.

        `state` and `capture` are as for `operator`; every bucket has a state, or a scratch folder, of its own.
        """
        make = partial(
            Operator,
            role=Role.OPERATOR,
            kind=Kind.BUCKETS,
            finishes=finishes,
            parallelism=parallelism,
            capture=capture,
        )
        return self._declare(function, make, operator_id=operator_id, state=state)

    @overload
    def transform(self, function: F) -> F: ...
    @overload
    def transform(
        self, *, operator_id: str | None = None, finishes: bool = False, capture: bool = True
    ) -> Callable[[F], F]: ...
    def transform(
        self,
        function: F | None = None,
        *,
        operator_id: str | None = None,
        finishes: bool = False,
        capture: bool = True,
    ) -> F | Callable[[F], F]:
        """Declare an operator on DataFrames (Spark only): DataFrames in, one DataFrame out, evaluated lazily.

        The function is called on a thread of the runner's own, in the context (`contextvars`) of the driver. The jobs
        that it starts on that thread are stopped when the driver is told to end; code of its own that does not end by
        that is left, and ends with the process.
        """
        make = partial(Operator, role=Role.OPERATOR, kind=Kind.FRAME, finishes=finishes, capture=capture)
        return self._declare(function, make, operator_id=operator_id)

    @overload
    def on_epoch_durable(self, function: F) -> F: ...
    @overload
    def on_epoch_durable(self, *, listener_id: str | None = None) -> Callable[[F], F]: ...
    def on_epoch_durable(self, function: F | None = None, *, listener_id: str | None = None) -> F | Callable[[F], F]:
        """Tell this function of every durable epoch, with effect once; `model.listener` says what it may take.

        One that is added to a run, or renamed without a `listener_id`, hears of every epoch from the run's first on.
        """
        return self._listen(function, ListenerEvent.EPOCH_DURABLE, listener_id=listener_id)

    @overload
    def on_terminated(self, function: F) -> F: ...
    @overload
    def on_terminated(self, *, listener_id: str | None = None) -> Callable[[F], F]: ...
    def on_terminated(self, function: F | None = None, *, listener_id: str | None = None) -> F | Callable[[F], F]:
        """Tell this function that the run terminated, with effect once; `model.listener` says what it may take."""
        return self._listen(function, ListenerEvent.TERMINATED, listener_id=listener_id)

    def feedback(self, **tails: Function) -> None:
        """Wire each variable to the operator whose result is its value in the next epoch."""
        self._feedback |= {variable: self._name_of(function) for variable, function in tails.items()}

    def criteria(self, function: Function) -> None:
        """Terminate the run after the first epoch in which this operator returns no records."""
        self._criteria = self._name_of(function)

    def output(self, *, sink: object = None, each_epoch: bool = False, **operators: Function) -> None:
        """Publish these operators' results of the last epoch; without any, the variables are published.

        They lie in the run's folder. With a `sink` (of `iteration_lib.sinks`, or a function that gives one for the
        run's parameters) they go there, too, and with `each_epoch` those of every epoch do.
        """
        if sink is None and each_epoch:
            raise DefinitionError(self.name, "each_epoch=True needs a sink to publish to; give the output a sink=")
        if sink is not None and not _is_sink(sink):
            problem = f"the sink is {sink!r}; it has prepare, commit and abort, or is a function that gives such a one"
            raise DefinitionError(self.name, problem)
        if sink is not None and not operators:
            raise DefinitionError(
                self.name, "a sink is given, and no output to go there; name it: output(x=..., sink=...)"
            )
        self._outputs |= {name: self._name_of(function) for name, function in operators.items()}
        if sink is not None:
            self._sinks |= dict.fromkeys(operators, SinkDeclaration(sink=sink, each_epoch=each_epoch))

    def graph(self) -> Graph:
        """Return the checked wiring; raises DefinitionError with the operator's id."""
        graph = build_graph(
            self.name,
            self._operators,
            feedback=self._feedback,
            criteria=self._criteria,
            outputs=self._outputs,
            sinks=self._sinks,
            open_ended=self.open_ended,
        )
        return dataclasses.replace(graph, listeners=tuple(self._listeners), checkpointing=self.checkpointing)

    def _declare(
        self, function: F | None, make: Callable[..., Operator], *, operator_id: str | None, state: str | None = None
    ) -> F | Callable[[F], F]:
        def declare(decorated: F) -> F:
            self._check_function(decorated)
            own_id = operator_id or decorated.__name__
            scope = self._scope_of(state, own_id)
            inputs, injected = parameters_of(decorated, own=(scope.parameter,) if scope is not None else ())
            operator = make(
                operator_id=own_id,
                name=decorated.__name__,
                function=decorated,
                inputs=inputs,
                injected=injected,
                state=scope,
            )
            if operator.parallelism is not None and operator.parallelism < 1:
                problem = f"parallelism is {operator.parallelism}; it is at least 1"
                raise DefinitionError(self.name, problem, operator_id=own_id)
            self._operators.append(operator)
            return decorated

        return declare if function is None else declare(function)

    def _check_function(self, given: object) -> None:
        """Refuse what has no name to be called by, and what returns before it has run."""
        shown = getattr(given, "__name__", repr(given))
        if not (callable(given) and hasattr(given, "__name__")) or isinstance(given, type):
            problem = f"{shown} is a {type(given).__name__}, not a function; call it in one: def ...(...): return ..."
            raise DefinitionError(self.name, problem)
        if iscoroutinefunction(given) or isgeneratorfunction(given) or isasyncgenfunction(given):
            problem = f"{shown!r} gives a coroutine or a generator, which nobody runs; write a plain function"
            raise DefinitionError(self.name, problem)

    def _scope_of(self, state: str | None, operator_id: str) -> StateScope | None:
        if state is None:
            return None
        try:
            return StateScope(state)
        except ValueError as err:
            known = " or ".join(f'"{scope.value}"' for scope in StateScope)
            raise DefinitionError(
                self.name, f"state is {state!r}; it is {known}, or left out", operator_id=operator_id
            ) from err

    def _listen(self, function: F | None, event: ListenerEvent, *, listener_id: str | None) -> F | Callable[[F], F]:
        def listen(decorated: F) -> F:
            self._check_function(decorated)
            listener = listener_of(self.name, decorated, event, listener_id=listener_id)
            if not is_plain(listener.listener_id):
                problem = f"the listener {listener.listener_id!r} needs a name of letters, digits and ._-=+"
                raise DefinitionError(self.name, problem)
            if any(known.listener_id == listener.listener_id for known in self._listeners):
                problem = f"two listeners are called {listener.listener_id!r}; give one of them another listener_id"
                raise DefinitionError(self.name, problem)
            self._listeners.append(listener)
            return decorated

        return listen if function is None else listen(function)

    def _name_of(self, function: Function) -> str:
        for operator in self._operators:
            if operator.function is function:
                return operator.name
        name = getattr(function, "__name__", repr(function))
        raise DefinitionError(self.name, f"{name!r} is not declared here; decorate it with @{self.name}.operator first")


def _is_sink(found: object) -> bool:
    has_steps = all(callable(getattr(found, step, None)) for step in _STEPS_OF_A_SINK)
    return (has_steps and not isinstance(found, type)) or (callable(found) and not has_steps)
