"""The statements, and the queries that audit them."""

from __future__ import annotations

from sparkwap.erasure.conditions import Conditions
from sparkwap.erasure.rewrite import Rewrite, Update, cleared, fewer_rows, literal

TABLE = ("s", "t")
COLUMNS = ["id", "email"]


def test_rows_are_deleted_on_the_branch() -> None:
    rewrite = Rewrite(TABLE, COLUMNS, delete="(id = 1)")
    assert rewrite.statements("b") == ["delete from `s`.`t`.`branch_b` where (id = 1)"]


def test_values_are_updated_on_the_branch() -> None:
    rewrite = Rewrite(TABLE, COLUMNS, updates=[Update("id = 1", {"email": "null"})])
    assert rewrite.statements("b") == ["update `s`.`t`.`branch_b` set `email` = null where id = 1"]


def test_a_table_with_hidden_rows_is_rewritten_as_a_whole() -> None:
    rewrite = Rewrite(TABLE, COLUMNS, delete="(id = 1)", whole=True)
    assert rewrite.statements("b") == [
        "insert overwrite table `s`.`t`.`branch_b` select `id`, `email` from "
        "`s`.`t` version as of 'main' where not (id = 1)"
    ]


def test_an_empty_commit_drops_manifests_that_cannot_be_written() -> None:
    rewrite = Rewrite(TABLE, COLUMNS, delete="(id = 1)", whole=True, settle=True)
    assert rewrite.statements("b")[1:] == [
        "insert into `s`.`t`.`branch_b` select * from `s`.`t` version as of 'main' where false"
    ]


def test_the_audit_compares_the_branch_with_main() -> None:
    update = Update("id = 2", {"email": "null"})
    expected, there = Rewrite(TABLE, COLUMNS, "(id = 1)", [update]).audit("b")
    assert "if(id = 2, null, `email`) as `email` from `s`.`t` version as of 'main'" in expected
    assert "where not (id = 1)" in expected
    assert "from `s`.`t` version as of 'b')" in there
    assert expected.split("from (")[0] == there.split("from (")[0]


def test_a_literal_has_no_plain_value() -> None:
    assert "anna" not in literal("anna@mail.example", "string")
    assert literal(None, "date") == "cast(null as date)"
    assert cleared(["id"], {"id": "bigint"}) == {"id": "cast(null as bigint)"}


def test_the_row_counts_of_a_log_are_reduced() -> None:
    conditions = Conditions("ab")
    update = fewer_rows(
        conditions, {"one.csv": 2}, {"_file_rows": "bigint", "_file_sha256": "string"}
    )
    digest = conditions.digest("one.csv")
    assert "_kind = 'file'" in update.where
    assert digest in update.where
    assert f"when '{digest}' then 2 else 0 end" in update.sets["_file_rows"]
    # The file may be edited now, and its copies are still known.
    assert update.sets["_file_sha256"] == "concat('erased:', substr(`_file_sha256`, -64))"
