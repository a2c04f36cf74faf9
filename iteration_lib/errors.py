"""Which errors does this project raise, and who has to act on them?

    IterationError
    ├── UsageError              the caller's mistake; nothing was lost or half written (exit code 2)
    │   ├── DefinitionError       the iteration's wiring
    │   ├── IterationNotFoundError  module:object that is not there
    │   ├── ParameterError        unknown, missing or ill-typed parameter
    │   ├── RunMismatchError      the run key belongs to other parameters or other code
    │   ├── IllegalRestoreError   operators are marked as finished behind some that are not
    │   ├── IllegalBranchError    a run cannot start from this checkpoint
    │   ├── OriginGoneError       the checkpoint that a branch was to start from is not there any more
    │   ├── RunNotFoundError
    │   ├── RunDeletedError       a person has deleted the run
    │   ├── RunStoppedError       a person has stopped the run, and nobody has resumed it
    │   ├── RunNotStoppedError    the run is not stopped, so nobody can resume it
    │   ├── StopRefusedError      the run cannot be stopped as it is
    │   ├── FallbackRefusedError  the run cannot go on from an older checkpoint
    │   ├── InputError            input data missing, empty, changed or not readable
    │   ├── SchemaMismatchError   a feedback's schema is not its variable's
    │   ├── MetricError           a metric that is not a finite number
    │   ├── OperatorResultError   an operator returned what no stream can hold
    │   ├── SinkTargetError       what a sink publishes into does not take it
    │   ├── ValueNotKeptError     a variable of a loop holds what no file can hold
    │   ├── VariableNotFoundError  a loop has no variable of this name
    │   ├── LoopRunError          the run is a loop in a user's script, which has to be run again
    │   ├── StateLocationError    the state location cannot be used
    │   ├── StoreUnavailableError   no store answers at the address
    │   ├── StoreUnusableError    what lies at the address refuses the login, or is not ours
    │   ├── ConnectionNotFoundError  Airflow finds no such connection
    │   ├── StoreVersionError     the store's schema is not this version's
    │   ├── EmbeddedStoreError    the embedded Postgres cannot be installed, started or shared
    │   ├── SparkUnavailableError  no Spark at the master's address
    │   └── JavaNotFoundError
    ├── RunFinishedError        the run has finished meanwhile; there is nothing left to drive
    ├── LeaseHeldError          another attempt is live; wait, or take over (exit code 3)
    ├── SupersededError         a newer attempt holds the run; stop now, write nothing (exit code 3)
    ├── OutcomeUnknownError     the connection was lost; the call may be repeated, nothing may be deleted
    │   ├── StatementCancelledError  a statement was cancelled; it has changed nothing
    │   └── RunLockedError        another transaction does not let the run go; nothing was changed
    ├── CommitLostError         the store's server crashed and lost what it had answered; a retry resumes
    ├── ExecutionLostError      Spark's JVM, an executor's blocks or the parent process is gone; a retry resumes
    ├── OperatorFailedError     the user's function raised
    ├── StateCorruptedError     a state file is missing or is not the bytes that were written
    └── ProtocolViolationError  our bug: an event that no legal caller sends

Those that an operator is to blame for are OperatorErrors as well, whoever has to act on them. Every error carries its
fields and one sentence that ends with what to do next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

SHOWN_TO_ALL = "holds a password, which the store would show to all who read it; leave it to fsspec's configuration"
_USER = re.compile(r"(?<=//)[^/\s]*(?=@)")  # up to the last @: a password may hold one
_PASSWORD = re.compile(r"(?<!github)(?<!git)://[^/]*:[^/]*@")  # there it is repository:branch@path
_CONNECT = re.compile(r"(sc://[^/;]*)[/;]*(.*)")
_NO_SECRETS = ("use_ssl", "user_id", "session_id", "user_agent", "grpc_max_message_size")  # of its parameters


def without_user(text: str) -> str:
    """Return a text with stars for the users and passwords of the addresses in it."""
    return _USER.sub("***", text)


def without_password(address: str) -> str:
    """Return an address with stars for its user and password; as it is if it has no password."""
    return _PASSWORD.sub("://***@", address)


def say(error: BaseException) -> str:
    """Return what kind of an error it is and what it says: a user's may fail even in that."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - the border to the user's code
        said = ""
    return f"{type(error).__name__}: {said}".removesuffix(": ")


class IterationError(Exception):
    """Root of every error that this project raises.

    `is_passing` is True for a mistake that may as well be an outage: a person has to look, a scheduler may try again.
    """

    exit_code = 1
    is_passing = False


class OperatorError(IterationError):
    """The user's operator, or listener, `operator_id` is to blame, in `epoch` if that is known."""

    operator_id: str
    epoch: int | None = None


class UsageError(IterationError):
    """The caller has to change something; nothing was lost or half written."""

    exit_code = 2


class DefinitionError(UsageError):
    """The iteration's operators do not fit together."""

    def __init__(self, iteration: str, problem: str, *, operator_id: str | None = None) -> None:
        self.iteration = iteration
        self.operator_id = operator_id
        where = f"iteration {iteration!r}" + (f", operator {operator_id!r}" if operator_id else "")
        super().__init__(f"{where}: {problem}")


class IterationNotFoundError(UsageError):
    """The reference `module:object` does not lead to an iteration."""

    def __init__(self, reference: str, problem: str) -> None:
        self.reference = reference
        super().__init__(f"{reference!r}: {problem}")


class ParameterError(UsageError):
    """A parameter is unknown, missing or has a value of the wrong type."""

    def __init__(self, problem: str, *, name: str | None = None) -> None:
        self.name = name
        super().__init__(problem)


class RunMismatchError(UsageError):
    """The run key is taken by a run with other parameters or other code."""

    def __init__(self, run_key: str, differences: tuple[str, ...]) -> None:
        self.run_key = run_key
        self.differences = differences
        shown = "\n".join(f"  - {difference}" for difference in differences)
        super().__init__(
            f"run key {run_key!r} belongs to a run that differs:\n{shown}\n"
            "Use another run key, or the same parameters and code to resume that run."
        )


class IllegalRestoreError(UsageError):
    """Operators are marked as finished behind some that are not: their outputs would not be what they take."""

    def __init__(self, run_key: str, offences: tuple[str, ...]) -> None:
        self.run_key = run_key
        self.offences = offences
        shown = "\n".join(f"  - {offence}" for offence in offences)
        super().__init__(
            f"run {run_key!r} cannot go on with these operators:\n{shown}\n"
            "Put the operators back as they were, or start another run with another run key."
        )


class IllegalBranchError(UsageError):
    """A run cannot start from a checkpoint."""

    def __init__(self, checkpoint: str, reasons: tuple[str, ...]) -> None:
        self.checkpoint = checkpoint
        self.reasons = reasons
        shown = "\n".join(f"  - {reason}" for reason in reasons)
        super().__init__(f"no run can start from {checkpoint}:\n{shown}\nMend that, or start from another one.")


class OriginGoneError(UsageError):
    """The checkpoint that a branch was to start from is not there any more; nothing was changed."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem} any more; `iteration checkpoints` shows which are")


class RunNotFoundError(UsageError):
    """No run has this id or key; where a savepoint's folder would do as well, it is none."""

    def __init__(self, run: str, *, is_savepoint_allowed: bool = False) -> None:
        self.run = run
        savepoint = ", and it is no folder with a savepoint.json" if is_savepoint_allowed else ""
        super().__init__(f"no run has the id or the key {run!r}{savepoint}; `iteration list` shows what there is")


class InputError(UsageError):
    """Input data is missing, empty, or not what was pinned when the run started; or nobody can read it to tell."""

    def __init__(self, problem: str, *, is_passing: bool = False) -> None:
        self.is_passing = is_passing
        super().__init__(problem)


class SchemaMismatchError(UsageError, OperatorError):
    """A feedback's schema is not its variable's."""

    def __init__(self, *, variable: str, operator_id: str, expected: str, found: str, epoch: int | None = None) -> None:
        self.variable = variable
        self.operator_id = operator_id
        self.epoch = epoch
        super().__init__(
            f"operator {operator_id!r} feeds back ({found}), but its variable {variable!r} is ({expected}); "
            "return the same columns with the same types"
        )


class MetricError(UsageError, OperatorError):
    """A metric is not a finite number."""

    def __init__(self, *, name: str, value: object, operator_id: str) -> None:
        self.name = name
        self.operator_id = operator_id
        super().__init__(
            f"operator {operator_id!r} reported the metric {name!r} as {value!r}; a metric is a finite number, "
            "so check the input for NaN and the operator for overflow"
        )


class OperatorResultError(UsageError, OperatorError):
    """An operator returned something that a stream cannot hold."""

    def __init__(self, *, operator_id: str, problem: str) -> None:
        self.operator_id = operator_id
        super().__init__(f"operator {operator_id!r} {problem}")


class SinkTargetError(UsageError):
    """What a sink publishes into does not take it: a folder, a table; nothing of it was published."""

    def __init__(self, target: str, problem: str, *, is_passing: bool = False, way_out: str = "mend it") -> None:
        self.target = target
        self.problem = problem
        self.is_passing = is_passing
        self.way_out = way_out
        super().__init__(f"{target} {problem}; {way_out}, then run the same command again")


class ValueNotKeptError(UsageError):
    """A variable of a loop holds what no file can hold."""

    def __init__(self, *, variable: str, problem: str) -> None:
        self.variable = variable
        super().__init__(f"variable {variable} {problem}")


class VariableNotFoundError(UsageError, AttributeError):
    """A loop has no variable of this name."""

    def __init__(self, variable: str, *, known: tuple[str, ...]) -> None:
        self.variable = variable
        AttributeError.__init__(
            self,
            f"there is no variable {variable!r}; there are: {', '.join(known)}. Give its first value to "
            f"run.epochs({variable}=...)",
        )


class LoopRunError(UsageError):
    """The run's epochs are a loop in a user's script, and nobody else can run them."""

    def __init__(self, run: str) -> None:
        self.run = run
        super().__init__(f"run {run!r} is a loop in a script of its own; to go on with it, run that script again")


class StateLocationError(UsageError):
    """The state location cannot be written or read."""

    def __init__(self, uri: str, problem: str, *, is_passing: bool = False) -> None:
        self.uri = without_user(uri)
        self.problem = without_user(problem)
        self.is_passing = is_passing
        way_out = "choose another with --state or ITERATION_STATE_URI, a savepoint's with --to"
        super().__init__(f"state location {self.uri!r} {self.problem}; {way_out}")


class StoreUnavailableError(UsageError):
    """No metadata store lets this program in at the address."""

    is_passing = True

    def __init__(self, address: str, problem: str) -> None:
        self.address = address
        super().__init__(
            f"cannot connect to the store at {address} ({problem}); start it, or name another with --store or "
            "ITERATION_STORE_URL"
        )


class StoreUnusableError(UsageError):
    """The database at the address is there, but not for this program: it refuses the login, or is used by others."""

    def __init__(self, address: str, problem: str) -> None:
        self.address = address
        super().__init__(f"the store at {address} {problem}")


class ConnectionNotFoundError(UsageError):
    """Airflow finds no connection of this id, or what keeps it does not answer: Airflow does not say which."""

    is_passing = True

    def __init__(self, conn_id: str, way_out: str) -> None:
        self.conn_id = conn_id
        super().__init__(f"there is no connection {conn_id!r}, or the secrets backend that has it is away; {way_out}")


class StoreVersionError(UsageError):
    """The store's schema version is not one that this code knows."""

    def __init__(self, *, found: int | None, expected: int) -> None:
        self.found = found
        self.expected = expected
        if found is None:
            advice = "holds no iteration tables; run `iteration db upgrade`"
        elif found < expected:
            advice = f"has schema version {found}, this code needs {expected}; run `iteration db upgrade`"
        else:
            advice = f"has schema version {found}, this code knows only {expected}; install a newer iteration-lib"
        super().__init__(f"the store {advice}")


class EmbeddedStoreError(UsageError):
    """The embedded Postgres cannot be used: its programs, its folder or its start."""


class SparkUnavailableError(UsageError):
    """No Spark session could be opened. Of an address only the place is told: a token is among what follows it."""

    is_passing = True

    def __init__(self, master: str | None, problem: str) -> None:
        place, parameters = _split_master(master or "")
        for secret in _secrets_of(parameters):
            problem = problem.replace(secret, "***")
        self.master = place or None
        where = f"at {place}" if place else "on this machine"
        super().__init__(f"no Spark session {where} ({problem}); check --master, or the connection's host")


def _secrets_of(parameters: Iterable[str]) -> list[str]:
    """Return what must not be shown, as it stands in the address and as it is meant; the longest first."""
    split = (parameter.partition("=") for parameter in parameters)
    values = [value if sign else name for name, sign, value in split if name not in _NO_SECRETS]
    return sorted({*values, *map(unquote, values)} - {""}, key=len, reverse=True)


def _split_master(master: str) -> tuple[str, list[str]]:
    """Return where a master is, without a user, and the parameters of a Spark Connect server's address."""
    connect = _CONNECT.match(master)
    if connect is None:
        return without_user(master), []
    return without_user(connect[1]), [parameter for parameter in connect[2].split(";") if parameter]


class JavaNotFoundError(UsageError):
    """No Java that can run Spark."""


class CheckpointNotFoundError(UsageError):
    """The run has no such checkpoint, or it has no files."""

    def __init__(self, run_id: str, checkpoint_id: int, *, last: int) -> None:
        """Say which checkpoints there are; of one of them, that it is the files that are not there."""
        shown = f"its checkpoints are 1 to {last}" if last else "it has no checkpoint yet"
        said = f"run {run_id} has no checkpoint {checkpoint_id}; {shown}"
        if 1 <= checkpoint_id <= last:
            said = f"checkpoint {checkpoint_id} of run {run_id} has no files, or none any more; choose another one"
        super().__init__(f"{said} (see: iteration checkpoints {run_id})")
        self.run_id = run_id
        self.checkpoint_id = checkpoint_id


class CheckpointFailedError(IterationError):
    """A checkpoint that the run cannot go on without was not completed, or not committed; durable epochs stay so."""

    def __init__(self, run_id: str, epoch: int, problem: str) -> None:
        """Say what became of the checkpoint of an epoch."""
        super().__init__(f"run {run_id}: {problem}; mend the cause and resume the run")
        self.run_id = run_id
        self.epoch = epoch
        self.problem = problem


class RunFinishedError(IterationError):
    """No epoch of the run comes any more: it has finished, or its outputs alone are to be published."""

    def __init__(self, run_id: str, *, is_published: bool = True) -> None:
        self.run_id = run_id
        super().__init__(
            f"run {run_id} is finished; nothing is left to drive or to stop, "
            f"`iteration show {run_id}` says how it ended"
            if is_published
            else f"run {run_id} terminates: no epoch of it comes any more, and nothing is left to stop; whoever drives "
            "it publishes its outputs"
        )


class RunDeletedError(UsageError):
    """A person has deleted the run."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id} was deleted; its key is free for a new run")


class RunStoppedError(UsageError):
    """A person has stopped the run, and nobody has resumed it."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id} is stopped; `iteration resume {run_id}` lets it go on")


class RunNotStoppedError(UsageError):
    """The run is not stopped: there is nothing to resume."""

    def __init__(self, run_id: str, status: str) -> None:
        self.run_id = run_id
        self.status = status
        super().__init__(
            f"run {run_id} is {status}, not STOPPED: there is nothing to resume; "
            f"`iteration plan {run_id}` says what comes next"
        )


class StopRefusedError(UsageError):
    """The run cannot be stopped as it is."""

    def __init__(self, run_id: str, reason: str, way_out: str) -> None:
        self.run_id = run_id
        self.reason = reason
        super().__init__(f"run {run_id} cannot be stopped: {reason}; {way_out}")


class FallbackRefusedError(UsageError):
    """The run cannot go on from an older checkpoint, or not before what a person has pinned is released."""

    def __init__(
        self, run_id: str, reason: str, *, pinned_by_hand: Sequence[int] = (), may_branch: bool = True
    ) -> None:
        self.run_id = run_id
        self.reason = reason
        self.release = " and ".join(f"`iteration release {run_id} {known}`" for known in pinned_by_hand) or None
        ways = [*([self.release] if self.release else []), "restore the files"]
        if may_branch:
            ways.append("start another run from an older checkpoint (iteration branch, unless its epochs are a loop)")
        super().__init__(f"run {run_id} cannot fall back to an older checkpoint: {reason}; {', or '.join(ways)}")


class LeaseHeldError(IterationError):
    """Another attempt is live and its lease has not run out."""

    exit_code = 3

    def __init__(self, *, run_id: str, holder: str, expires_at: str) -> None:
        self.run_id = run_id
        self.holder = holder
        super().__init__(
            f"run {run_id} is being driven by {holder} (lease until {expires_at}); wait for it, end it with "
            f"`iteration stop {run_id}`, or drive it with --takeover (in a script takeover=True) if you know "
            "that it is gone"
        )


class SupersededError(IterationError):
    """A newer attempt holds the run: this one must stop and may publish nothing.

    `held` is its token, None where only the store remembers that it was ever opened.
    """

    exit_code = 3

    def __init__(self, *, run_id: str, held: int | None, current: int | None) -> None:
        self.run_id = run_id
        self.held = held
        self.current = current
        mine = f"token {held}" if held is not None else "an old token"
        newer = f"token {current} is in force" if current is not None else "the attempt has ended"
        super().__init__(
            f"superseded: this attempt holds {mine} of run {run_id}, but {newer}; "
            "nothing of it was committed after that, and the newer attempt goes on"
        )


class OutcomeUnknownError(IterationError):
    """The connection was lost: the transaction may or may not have committed."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"lost the connection to the store ({problem}); run the same command again to resume")


class CommitLostError(IterationError):
    """The store's server has lost a commit that it had answered, and the run was changed before it could be repeated.

    It crashed, or a standby that was behind has taken its place.
    """

    def __init__(self, run_id: str, problem: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"the store's server has lost the last commit of run {run_id}, and it cannot be repeated ({problem}); "
            "nothing durable is lost: run the same command again to resume"
        )


class RunLockedError(OutcomeUnknownError):
    """Another transaction has held the run, or what `held` says, for as long as anybody waits: nothing was changed."""

    def __init__(self, problem: str, *, held: str = "the run's lock") -> None:
        IterationError.__init__(
            self, f"another process holds {held} ({problem}); nothing was changed: run the same command again"
        )


class StatementCancelledError(OutcomeUnknownError):
    """The database has cancelled a statement, as one that took too long: it has changed nothing, it may be repeated."""

    def __init__(self, problem: str) -> None:
        IterationError.__init__(
            self,
            f"the store has cancelled a statement, which has changed nothing ({problem}); run the same command again; "
            "where it took too long, let the login have a longer statement_timeout",
        )


class ExecutionLostError(IterationError):
    """What ran the operators is gone; the run's durable epochs are not affected."""

    exit_code = 4

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what}; run the same command again to resume from the last durable epoch")


class OperatorFailedError(OperatorError):
    """A user's operator raised; the cause is chained."""

    def __init__(self, *, operator_id: str, epoch: int | None, cause: str) -> None:
        self.operator_id = operator_id
        self.epoch = epoch
        when = f" in epoch {epoch}" if epoch is not None else ""
        super().__init__(
            f"operator {operator_id!r} failed{when}: {cause}; run the same command again to resume from the last "
            "durable epoch"
        )


class StateCorruptedError(IterationError):
    """A state file is missing or its digest is not the one in the manifest; or nobody can read it to tell."""

    def __init__(
        self, uri: str, problem: str, *, is_unreadable: bool = False, way_out: str = "nothing was changed"
    ) -> None:
        self.uri = without_user(uri)
        self.problem = without_user(problem)
        self.is_unreadable = is_unreadable
        self.is_passing = is_unreadable
        super().__init__(f"state file {self.uri} {self.problem}; restore the file, {way_out}")


class ProtocolViolationError(IterationError):
    """An event that no legal caller sends in this state: a bug in this project."""
