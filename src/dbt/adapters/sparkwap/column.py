"""Columns with the type names that Spark and Iceberg return."""

from __future__ import annotations

from dataclasses import dataclass

from dbt.adapters.spark.column import SparkColumn

from sparkwap.core.sqltext import quote

_INTEGERS = frozenset({"tinyint", "smallint", "int", "integer", "bigint", "long", "short", "byte"})
_FLOATS = frozenset({"float", "double", "real"})


@dataclass
class SparkWapColumn(SparkColumn):
    @property
    def quoted(self) -> str:
        return quote(self.column)

    def _base_type(self) -> str:
        return self.dtype.lower().partition("(")[0].strip()

    def is_string(self) -> bool:
        return self._base_type() in ("string", "varchar", "char", "character", "text")

    def is_integer(self) -> bool:
        return self._base_type() in _INTEGERS

    def is_float(self) -> bool:
        return self._base_type() in _FLOATS

    def is_numeric(self) -> bool:
        return self._base_type() in ("decimal", "numeric", "dec")

    def is_number(self) -> bool:
        return self.is_integer() or self.is_float() or self.is_numeric()

    def string_size(self) -> int:
        return 256
