"""Operations as dataclasses: the fields are the arguments of a run-operation.

The fields define the checks of arguments, the macros with their docs, the options of the command
line, and the tables of the reference.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from sparkwap.core.errors import ConfigError


def argument(what: str, *, default: Any = MISSING, least: int = 0, most: int | None = None) -> Any:
    """Return a dataclass field for an argument.

    Args:
        what: A description with the legal values.
        default: The default value; without one, the argument is required.
        least: The smallest legal number.
        most: The largest legal number; None for no limit.
    """
    return field(default=default, metadata={"what": what, "least": least, "most": most})


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The checked arguments of an operation.

    Attributes:
        only_reads: Whether the operation changes nothing. Then an interrupted publish is left as it
            is, and hooks and nodes may call it too.
        harmless: The state after a refusal, for messages.
    """

    name: ClassVar[str]
    only_reads: ClassVar[bool] = False
    harmless: ClassVar[str] = "Nothing was changed"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the arguments of a run-operation or a command line; None means not given."""
        known = {argument.name: argument for argument in fields(cls)}
        values = {key: value for key, value in given.items() if value is not None}
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise cls.refused(f"unknown argument: {', '.join(unknown)}")
        for key, argument in known.items():
            if argument.default is MISSING and key not in values:
                raise cls.refused(f"{key} is missing")
        hints = get_type_hints(cls)
        return cls(**{key: cls._value(known[key], hints[key], values[key]) for key in values})

    @classmethod
    def refused(cls, problem: str) -> ConfigError:
        """Return the error for a problem with the arguments, with a list of all arguments."""
        given = "--args \"{key: 'value'}\" of dbt; --key value of sparkwap, with - for _"
        head = f"{cls.name}: {problem}. {cls.harmless}. Arguments ({given}):"
        return ConfigError("\n".join([head, *(f"  {key}: {what}" for key, what in cls.legal())]))

    @classmethod
    def legal(cls) -> list[tuple[str, str]]:
        """Return each argument with its description."""
        return [(argument.name, argument.metadata["what"]) for argument in fields(cls)]

    @classmethod
    def types(cls) -> dict[str, str]:
        """Return each argument's type, as dbt names it for the arguments of macros."""
        hints = get_type_hints(cls)
        return {argument.name: _type_name(plain(hints[argument.name])) for argument in fields(cls)}

    @classmethod
    def _value(cls, argument: Field[Any], hint: Any, value: Any) -> Any:
        kind, text = plain(hint), str(value)
        origin, problem = get_origin(kind), f"{argument.name} is {text!r}"
        if kind is bool:
            if text.lower() not in ("true", "false"):
                raise cls.refused(f"{problem}; legal: true, false")
            return text.lower() == "true"
        if kind is int:
            least, most = argument.metadata["least"], argument.metadata["most"]
            legal = text.isdecimal() and least <= int(text) <= (int(text) if most is None else most)
            if isinstance(value, bool) or not legal:
                up_to = " or more" if most is None else f" to {most}"
                raise cls.refused(f"{problem}; legal: {least}{up_to}")
            return int(text)
        if origin is Literal:
            if text not in get_args(kind):
                raise cls.refused(f"{problem}; legal: {', '.join(get_args(kind))}")
            return text
        if origin is tuple:
            values = value if isinstance(value, list | tuple) else [value]
            return tuple(cls.text(argument.name, one) for one in values)
        if origin is Mapping or kind is Mapping:
            if not isinstance(value, dict) or not value:
                raise cls.refused(f"{problem}, which is not a mapping")
            return value
        # A run id or name that YAML has changed is not found, so whole numbers are legal.
        if isinstance(value, bool) or not isinstance(value, int | date):
            text = cls.text(argument.name, value)
        return Path(text) if kind is Path else text

    @classmethod
    def text(cls, name: str, value: Any) -> str:
        """Return a value as it was given, if it is a text: of others, YAML loses the spelling.

        Raises:
            ConfigError: It is a number, for example; the message does not have it.
        """
        if not isinstance(value, str):
            raise cls.refused(
                f"{name} has a value that is no text ({type(value).__name__}). YAML changes some "
                "values without quotes, such as 042 into 34: put them into single quotes, with "
                "double quotes outside, such as --args \"{key: '042'}\""
            )
        return value


def plain(hint: Any) -> Any:
    """Return a type without None, which is the value of an argument that is not given."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (option for option in get_args(hint) if option is not type(None))
    return hint


def _type_name(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return "list[string]"
    known = {bool: "bool", int: "integer"}
    is_mapping = get_origin(kind) not in (None, Literal)
    return "dict[string, any]" if is_mapping else known.get(kind, "string")
