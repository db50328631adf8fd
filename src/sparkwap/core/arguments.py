"""Operations as dataclasses: the fields are the arguments of a run-operation.

The checks of arguments, the macros with their docs, the options of the command line and the tables
of the reference come from the fields.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from sparkwap.core.errors import ConfigError


def argument(what: str, *, default: Any = MISSING, least: int = 0, most: int | None = None) -> Any:
    """A field that is an argument.

    Args:
        what: What it is, with its legal values in words.
        default: Its value if it is left out; without one it must be given.
        least: The smallest legal number.
        most: The largest legal number; None for any.
    """
    return field(default=default, metadata={"what": what, "least": least, "most": most})


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments of an operation, checked.

    Attributes:
        name: The operation's name in dbt.
        harmless: What is said of an operation that was refused.
    """

    name: ClassVar[str]
    harmless: ClassVar[str] = "Nothing has changed"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The arguments as a run-operation or a command line gives them; None is not given.

        Raises:
            ConfigError: One is unknown, lacks or has an illegal value; the message names all.
        """
        known = {one.name: one for one in fields(cls)}
        wanted = {key: value for key, value in given.items() if value is not None}
        unknown = sorted(set(wanted) - set(known))
        if unknown:
            raise cls.refused(f"unknown argument: {', '.join(unknown)}")
        for key, one in known.items():
            if one.default is MISSING and key not in wanted:
                raise cls.refused(f"{key} is missing")
        hints = get_type_hints(cls)
        return cls(**{key: cls._value(known[key], hints[key], wanted[key]) for key in wanted})

    @classmethod
    def refused(cls, problem: str) -> ConfigError:
        """The error that tells a problem with the arguments, and what they may be."""
        head = f"{cls.name}: {problem}. {cls.harmless}. Arguments (--args '{{key: value}}'):"
        return ConfigError("\n".join([head, *(f"  {key}: {what}" for key, what in cls.legal())]))

    @classmethod
    def legal(cls) -> list[tuple[str, str]]:
        """Each argument, with its legal values in words."""
        return [(one.name, one.metadata["what"]) for one in fields(cls)]

    @classmethod
    def types(cls) -> dict[str, str]:
        """Each argument's type, as dbt has it for the arguments of macros."""
        hints = get_type_hints(cls)
        return {one.name: _type_name(plain(hints[one.name])) for one in fields(cls)}

    @classmethod
    def _value(cls, one: Field[Any], hint: Any, value: Any) -> Any:
        kind, text = plain(hint), str(value)
        origin, told = get_origin(kind), f"{one.name} is {text!r}"
        if kind is bool:
            if text.lower() not in ("true", "false"):
                raise cls.refused(f"{told}, and neither true nor false")
            return text.lower() == "true"
        if kind is int:
            least, most = one.metadata["least"], one.metadata["most"]
            legal = text.isdecimal() and least <= int(text) <= (int(text) if most is None else most)
            if isinstance(value, bool) or not legal:
                up_to = " or more" if most is None else f" to {most}"
                raise cls.refused(f"{told}; legal: {least}{up_to}")
            return int(text)
        if origin is Literal:
            if text not in get_args(kind):
                raise cls.refused(f"{told}; legal: {', '.join(get_args(kind))}")
            return text
        if origin is tuple:
            values = value if isinstance(value, list | tuple) else [value]
            return tuple(map(str, values)) if get_args(kind)[0] is str else tuple(values)
        if origin is Mapping or kind is Mapping:
            if not isinstance(value, dict) or not value:
                raise cls.refused(f"{told}, and no mapping")
            return value
        return Path(text) if kind is Path else text


def plain(hint: Any) -> Any:
    """A type without the None that stands for an argument that is left out."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (one for one in get_args(hint) if one is not type(None))
    return hint


def _type_name(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return f"list[{'string' if get_args(kind)[0] is str else 'any'}]"
    known = {bool: "bool", int: "integer"}
    is_mapping = get_origin(kind) not in (None, Literal)
    return "dict[string, any]" if is_mapping else known.get(kind, "string")
