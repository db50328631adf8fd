"""SQL for JSON texts, in which a number keeps its text: ``1.10`` stays ``1.10``."""

from __future__ import annotations

from collections.abc import Sequence

from sparkwap.landing.row_sql import quote, text

# Spark reads a number with a fraction as a double. So such numbers are quoted first, with a prefix
# that Unicode reserves for internal use: ``1.10`` becomes "\ufdd01.10".
_MARK = "\ufdd0"
_FRACTION = (
    r'((?:[^"0-9-]++'  # neither text nor number
    r'|"[^"\\]*+(?:\\.[^"\\]*+)*+"'  # a text
    r"|(?!-0(?![0-9]))-?[0-9]++(?![.eE])"  # a whole number: Spark keeps all of its digits
    r"|-(?![0-9]))*+)"
    r"(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+)"
    # A number must end here. Quotes would make invalid JSON valid, or change a name.
    r"(?=[ \t\r\n]*+(?:[,}\]]|$))"
)
_MARKED = f'"?{_MARK}([-+.0-9eE]+)"?'


def json_object(value: str, columns: Sequence[str]) -> str:
    """Return SQL for a JSON text as a struct of texts; NULL if it is not a JSON object."""
    schema = ", ".join(f"{quote(c)} string" for c in [*columns, "_corrupt"])
    options = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt')"
    return f"from_json({value}, {text(schema)}, {options})"


def exact(value: str) -> str:
    """Return SQL for a JSON text with numbers with fractions as marked texts (see `plain`)."""
    found, quoted = text(rf"\G{_FRACTION}"), text(f'$1"{_MARK}$2"')
    marked = f"regexp_replace({value}, {found}, {quoted})"
    return f"if({value} rlike '[0-9][.eE]|-0', {marked}, {value})"


def plain(value: str) -> str:
    """Return SQL for a value or a part of the JSON text of `exact`, without marks."""
    return (
        f"if(contains({value}, {text(_MARK)}), "
        f"regexp_replace({value}, {text(_MARKED)}, '$1'), {value})"
    )


def json_field(struct: str, name: str) -> str:
    return f"nullif({plain(f'{struct}.{quote(name)}')}, '')"
