"""What does a person see while a run goes on? A bar over epochs, on standard error, where that is a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from iteration_lib.store.record import RunRecord


class ProgressBar:
    """An Observer that draws; does nothing where there is no terminal."""

    def __init__(self, console: Console) -> None:
        """Draw on `console`."""
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("epochs  {task.fields[metrics]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        """Start drawing."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing."""
        self._progress.stop()

    def run_restored(self, run: RunRecord, *, next_epoch: int) -> None:
        """Show the bar, filled up to the epoch that comes next; without max_epochs it has no end."""
        self._task = self._progress.add_task(run.run_key, total=run.max_epochs, completed=next_epoch, metrics="")

    def epoch_durable(self, epoch: int, *, metrics: Mapping[str, float], seconds: float) -> None:
        """Move on by one epoch and show its metrics."""
        if self._task is not None:
            shown = "  ".join(f"{name}={value:.6g}" for name, value in metrics.items())
            self._progress.update(self._task, completed=epoch + 1, metrics=f"{shown}  {seconds:.2f}s/epoch")
