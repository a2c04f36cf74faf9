"""What may the user's file say from one attempt to the next? Versions of one iteration, and the file that holds one.

Two variables and what comes to be fed back stay as they are. The rest are *slots*: operators, a data stream and a
variable, that a person adds, removes, renames, gives other code or other inputs, and declares in another order. Every
value is mixed with what its operator's code is, and a state lists it epoch by epoch: so each tells who made it.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from iteration_lib.model.definition import describe
from iteration_lib.model.iteration import Iteration
from tests.simulation.programs import Params, Program, Rows, mix

REFERENCE = f"{__name__}:EVOLVING"
EVOLVING: Iteration | None = None  # what a process finds that loads the file now: one world at a time
MAX_EPOCHS = 5

_OTHER_INPUTS, _RENAMED, _OTHER_CODE, _REORDERED = 0.15, 0.15, 0.05, 0.05  # of what is there; else it is removed
_RESTORED = 0.25  # how often a person goes back to an older version
_GIVEN_BACK = 0.4  # how often something is added that was there, or was not yet
_WITH_OTHERS = 0.4  # how often what an operator may take instead may be there
_MOVED_MEANWHILE = 0.5  # how often an operator that has begun to finish is given other inputs
_CODES, _TAKES_OTHERS = 3, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Where an operator may be. `decorator` and `options` are how it is declared, `inputs` what it takes, by ids.

    It may take `others` instead, where these are there. One that comes with another only takes it, in every epoch.
    """

    decorator: str
    inputs: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    injected: tuple[str, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    feeds: str | None = None  # the variable that it feeds back
    comes_with: str | None = None

    @property
    def is_once(self) -> bool:
        """Whether it is computed once and for all: read, or finished for good."""
        return self.decorator == "data" or self.finishes

    @property
    def finishes(self) -> bool:
        """Whether it finishes for good."""
        return bool(self.options.get("finishes"))

    @property
    def has_state(self) -> bool:
        """Whether a checkpoint holds something of it."""
        return self.decorator == "variable" or self.options.get("state") == "carry"


_TWO = {"parallelism": 2}
SLOTS: Mapping[str, Slot] = {
    "points": Slot(decorator="data"),
    "weight": Slot(decorator="variable", inputs=("points",)),
    "shards": Slot(decorator="variable", inputs=("points",), options=_TWO),
    "moved": Slot(decorator="operator", inputs=("weight", "shards"), injected=("metrics", "epoch"), feeds="weight"),
    "doubled": Slot(decorator="map_buckets", inputs=("shards",), options=_TWO),
    "shifted": Slot(decorator="map_buckets", inputs=("doubled", "moved"), options=_TWO, feeds="shards"),
    "drift": Slot(decorator="variable", inputs=("points",), others=("prices",)),
    "drifted": Slot(decorator="operator", inputs=("drift",), injected=("epoch",), feeds="drift", comes_with="drift"),
    "count": Slot(decorator="operator", inputs=("moved",), others=("weight",), options={"state": "carry"}),
    "visits": Slot(
        decorator="map_buckets", inputs=("points",), others=("doubled",), options={**_TWO, "state": "carry"}
    ),
    "extra": Slot(decorator="map_buckets", inputs=("points",), others=("prices",), options={**_TWO, "finishes": True}),
    "felt": Slot(decorator="operator", inputs=("extra",), comes_with="extra"),
    "norm": Slot(decorator="operator", inputs=("points",), others=("extra",), options={"finishes": True}),
    "judged": Slot(decorator="operator", inputs=("norm", "weight"), comes_with="norm"),
    "prices": Slot(decorator="data"),
    "probe": Slot(decorator="operator", inputs=("prices",), injected=("metrics", "epoch"), comes_with="prices"),
    "notes": Slot(
        decorator="map_buckets",
        inputs=("doubled",),
        others=("points",),
        injected=("scratch",),
        options={"state": "fresh"},
    ),
    "noted": Slot(decorator="operator", inputs=("notes",), comes_with="notes"),
}
FIXED = ("points", "weight", "shards", "moved", "doubled", "shifted")
_GIVEN = tuple(name for name, slot in SLOTS.items() if slot.decorator in ("data", "variable"))
OPTIONAL = tuple(name for name, slot in SLOTS.items() if name not in FIXED and slot.comes_with is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """An operator as a version of the file declares it: `code` counts the functions that were ever there."""

    code: int = 0
    name: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a person has put into a slot."""

    code: int = 0
    is_renamed: bool = False
    takes_others: bool = False


class Code:
    """What the function of an operator does; its digest is that of its repr, which its name is no part of."""

    def __init__(self, operator_id: str, declared: Declared, names: Mapping[str, str]) -> None:
        self.__name__ = self.__qualname__ = declared.name
        self._says = f"code {declared.code} of {operator_id}"
        self._slot = slot = SLOTS[operator_id]
        self._id = operator_id
        self._salt = 100 * tuple(SLOTS).index(operator_id) + declared.code + 1
        taken = (*(names[of] for of in declared.inputs), *slot.injected)
        taken += ("state",) if slot.has_state and slot.decorator != "variable" else ()
        keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__signature__ = inspect.Signature([inspect.Parameter(name, keyword) for name in taken])

    def __repr__(self) -> str:
        return self._says

    def __call__(self, **given: Any) -> Rows | tuple[Rows, Rows]:  # Any: rows, and what is injected
        """Return rows, or rows and the state."""
        if self._slot.decorator == "data":
            return tuple(range(self._salt, self._salt + 7))
        known = {name: given.pop(name) for name in ("metrics", "epoch", "scratch", "state") if name in given}
        state = known.get("state") or ()
        found = mix((self._salt, known.get("epoch", 0), *(row for rows in given.values() for row in rows), *state))
        if "metrics" in known:
            known["metrics"].report("loss" if self._id == "moved" else "behind", found)
        return ((found,), (*state, self._salt)) if "state" in known else (found,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What the file says: the choices, in the order in which they are declared there."""

    choices: tuple[tuple[str, Choice], ...]

    @property
    def declared(self) -> dict[str, Declared]:
        """The operators, by their ids."""
        choices = {**dict.fromkeys(FIXED, Choice()), **dict(self.choices)}
        choices |= {key: Choice() for key, slot in SLOTS.items() if slot.comes_with in choices}
        return {operator_id: _declared(operator_id, choice, choices) for operator_id, choice in choices.items()}


def _declared(operator_id: str, choice: Choice, there: Collection[str]) -> Declared:
    slot = SLOTS[operator_id]
    takes_others = choice.takes_others and slot.others and set(slot.others) <= set(there)
    name = f"{operator_id}_renamed" if choice.is_renamed else operator_id
    return Declared(code=choice.code, name=name, inputs=slot.others if takes_others else slot.inputs)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvolvingProgram(Program):
    """A version as it is run."""

    iteration: Iteration
    declared: Mapping[str, Declared]

    def is_like(self, other: EvolvingProgram) -> bool:
        """Tell whether two versions say the same; in which order does not count."""
        return self.declared == other.declared


@functools.lru_cache(maxsize=5_000)
def program_of(version: Version) -> EvolvingProgram:
    """Return a version's program."""
    declared = version.declared
    names = {operator_id: known.name for operator_id, known in declared.items()}
    iteration = Iteration("evolving", params=Params)
    functions = {operator_id: Code(operator_id, known, names) for operator_id, known in declared.items()}
    for operator_id, function in functions.items():
        slot = SLOTS[operator_id]
        getattr(iteration, slot.decorator)(operator_id=operator_id, **slot.options)(function)
    fed = ((SLOTS[operator_id].feeds, function) for operator_id, function in functions.items())
    iteration.feedback(**{names[head]: tail for head, tail in fed if head is not None})
    published = {key: known for key, known in functions.items() if key not in (*FIXED, *_GIVEN)}
    if "extra" in functions:  # which comes and goes: so what others alone took is asked for once more
        published["doubled"] = functions["doubled"]
    iteration.output(model=functions["moved"], **published)  # type: ignore[arg-type]  # none is called as its options
    graph = iteration.graph()
    return EvolvingProgram(
        name="evolving",
        reference=REFERENCE,
        graph=graph,
        definition=describe(graph),
        max_epochs=MAX_EPOCHS,
        iteration=iteration,
        declared=declared,
    )


class UsersFile:
    """The file that each attempt loads as it begins. `versions` are those that it ever held, the last one now."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._slots = random.sample(OPTIONAL, k=random.choice((1, 2, 2, 3)))
        others = {other for key in self._slots for other in SLOTS[key].others}.intersection(OPTIONAL)
        self._slots += [key for key in sorted(others.difference(self._slots)) if random.random() < _WITH_OTHERS]
        chosen = [key for key in self._slots if random.random() < 0.7]
        self.versions: list[Version] = []
        self._save(Version(choices=tuple((key, self._new_choice()) for key in chosen)))

    @property
    def program(self) -> EvolvingProgram:
        """What the file says now."""
        return program_of(self.versions[-1])

    def edit(self, begun: Collection[str] = ()) -> None:
        """Change one thing, or go back to an older version; some operators may have `begun` to finish for good."""
        choices = dict(self.versions[-1].choices)
        movable = [key for key in begun if key in choices and set(SLOTS[key].others) <= choices.keys()]
        if movable and self._random.random() < _MOVED_MEANWHILE:
            moved = self._random.choice(movable)
            choices[moved] = replace(choices[moved], takes_others=not choices[moved].takes_others)
            self._save(Version(choices=tuple(choices.items())))
            return
        if self._random.random() < _RESTORED:
            self._save(self._random.choice(self.versions))
            return
        gone = [key for key in self._slots if key not in choices]
        operator_id = self._random.choice(gone if gone and self._random.random() < _GIVEN_BACK else self._slots)
        choice = choices.get(operator_id)
        if choice is None:
            choices[operator_id] = self._new_choice()
        else:
            choices = self._change(choices, operator_id, choice)
        self._save(Version(choices=tuple(choices.items())))

    def revert(self, program: EvolvingProgram) -> None:
        """Go back to the version that a run has."""
        self._save(next(known for known in self.versions if program_of(known).is_like(program)))

    def made(self, definition: Mapping[str, object]) -> EvolvingProgram:
        """Return the version that has a definition."""
        wanted = json.dumps(definition)
        return next(p for p in map(program_of, self.versions) if json.dumps(p.definition) == wanted)

    def _new_choice(self) -> Choice:
        return Choice(code=self._random.randrange(_CODES), takes_others=self._random.random() < _TAKES_OTHERS)

    def _change(self, choices: dict[str, Choice], operator_id: str, choice: Choice) -> dict[str, Choice]:
        drawn = self._random.random()
        for rate, changed in (
            (_OTHER_INPUTS, replace(choice, takes_others=not choice.takes_others)),
            (_RENAMED, replace(choice, is_renamed=not choice.is_renamed)),
            (_OTHER_CODE, replace(choice, code=(choice.code + 1) % _CODES)),
        ):
            if drawn < rate:
                return {**choices, operator_id: changed}
            drawn -= rate
        if drawn < _REORDERED:
            return dict(reversed(choices.items()))
        return {key: known for key, known in choices.items() if key != operator_id}

    def _save(self, version: Version) -> None:
        global EVOLVING  # noqa: PLW0603 - the file is one, as it is for every process
        self.versions.append(version)
        EVOLVING = program_of(version).iteration
