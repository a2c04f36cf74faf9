"""What is a mutant? A tiny patch of the package, each one a plausible slip."""

from __future__ import annotations

from dataclasses import dataclass

from tests.misnamed import misnamed


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A patch of iteration_lib, of one file as a rule; `old` is in it exactly once.

    `rule` is what it breaks. One with `equivalent` cannot be noticed, for the reason given.
    """

    name: str
    rule: str
    file: str
    old: str
    new: str
    also: tuple[tuple[str, str, str], ...] = ()  # further patches: file, old, new
    equivalent: str | None = None
    is_evolving: bool = False  # is it tried on schedules in which the user's file changes
    in_short: bool = False  # part of what runs on every change

    @property
    def patches(self) -> tuple[tuple[str, str, str], ...]:
        """Each patch: file, old, new."""
        return ((self.file, self.old, self.new), *self.also)

    def patch(self, file: str, source: str) -> str:
        """Return a file's source as the mutant has it."""
        for patched, old, new in self.patches:
            source = source.replace(old, new) if patched == file else source
        return source

    def misnamed(self, violation: str) -> set[str]:
        """Return what the patches name that is not there, if it was noticed by that."""
        return {name for _, old, new in self.patches for name in misnamed(old, new, violation)}
