"""The SQL of the row hash; the state itself is tested on the server."""

import pytest

from sparkwap import cdc


def test_the_hash_escapes_what_it_joins_with() -> None:
    sql = cdc.row_hash(["a", "b`c"])
    assert sql.startswith("sha2(concat_ws(char(31), ")
    assert r"coalesce(replace(replace(`b``c`, r'\', r'\\'), char(31), r'\u'), r'\N')" in sql


def test_a_state_has_a_key() -> None:
    with pytest.raises(ValueError, match="at least one key column"):
        cdc.current(None, [])  # type: ignore[arg-type]
