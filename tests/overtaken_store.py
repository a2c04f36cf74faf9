"""A store whose run goes on while somebody reads it: a driver that is quicker than whoever looks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from iteration_lib.store.seam import StoreWithHistory


@dataclasses.dataclass
class Overtaken:
    """Passes every call on; behind the first answer of one method the run goes on."""

    store: StoreWithHistory
    method: str
    go_on: Callable[[], object] | None

    def __getattr__(self, name: str) -> Any:  # Any: whatever the store has
        found = getattr(self.store, name)
        if name != self.method or self.go_on is None:
            return found

        def overtaken(*args: Any, **options: Any) -> Any:
            rows, go_on, self.go_on = found(*args, **options), self.go_on, None
            if go_on is not None:
                go_on()
            return rows

        return overtaken
