"""What a guard is, and how it is taken away."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guard:
    """A guard, and a patch without it.

    Attributes:
        says: what holds as long as it is there.
        file: where it is, below ``src``.
        function: the function or method that has it, such as ``Run.built``.
        old: the text that is it; once in the function.
        new: what stands there without it.
        test: the test that fails then, as pytest names it, below ``tests/unit``.
    """

    says: str
    file: str
    function: str
    old: str
    new: str
    test: str


def guards_of(file: str, *guards: tuple[str, str, str, str, str]) -> tuple[Guard, ...]:
    """The guards of one file: each its other attributes, in their order."""
    return tuple(
        Guard(says, file, function, old, new, test) for says, function, old, new, test in guards
    )
