"""A store whose run goes on while somebody reads it: a driver that is quicker than whoever looks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from iteration_lib.store.seam import StoreWithHistory


@dataclasses.dataclass
class Overtaken:
    """Passes every call on; behind an answer of one method, the first or a later one, the run goes on."""

    store: StoreWithHistory
    method: str
    go_on: Callable[[], object]
    answers: int = 1

    def __getattr__(self, name: str) -> Any:  # Any: whatever the store has
        found = getattr(self.store, name)
        if name != self.method:
            return found

        def overtaken(*args: Any, **options: Any) -> Any:
            rows = found(*args, **options)
            self.answers -= 1
            if self.answers == 0:
                self.go_on()
            return rows

        return overtaken
