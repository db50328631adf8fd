"""dbt snapshots: keys that look the same when they are joined are told apart, NULL from empty."""

from __future__ import annotations

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject

# Joined by a bar, the first two are one key, and so are the next two.
SQL = """
    select a, b, {{ env_var('V') }} as amount, timestamp '2024-01-0{{ env_var('V') }}' as changed_at
    from values ('a|', 'b'), ('a', '|b'), ('c|', ''), ('c', '|'), ('', 'null') as t (a, b)
"""
HASHES = """
    select {{ snapshot_hash_arguments(['a', 'b']) }} as hash
    from values ('a|', 'b'), ('a', '|b'), ('a', null), ('a', ''), (null, 'a'), ('', 'a'),
        (null, null), ('', ''), ('null', null), (null, 'null') as t (a, b)
"""
SNAPSHOT = """
    {% snapshot history %}
    {{ config(strategy='timestamp', unique_key=['a', 'b'], updated_at='changed_at') }}
    select * from {{ ref('pairs') }}
    {% endsnapshot %}
"""


def test_keys_that_look_alike(make_project: MakeProject, reader: Reader) -> None:
    files = {
        "models/pairs.sql": SQL,
        "models/hashes.sql": "{{ config(materialized='table') }}" + HASHES,
        "snapshots/history.sql": SNAPSHOT,
    }
    project = make_project("hash", files, output={"poll_interval": 1})
    with pytest.MonkeyPatch.context() as patch:
        for version in "12":
            patch.setenv("V", version)
            project.dbt("build").succeeded()
    assert len(set(reader.table(project.schema, "hashes").values("hash"))) == 10
    rows = reader.table(project.schema, "history").rows
    assert len({row["dbt_scd_id"] for row in rows}) == 10
    found = sorted((r["a"], r["b"], r["amount"], r["dbt_valid_to"] is None) for r in rows)
    keys = [("", "null"), ("a", "|b"), ("a|", "b"), ("c", "|"), ("c|", "")]
    assert found == [(*key, v, v == 2) for key in keys for v in (1, 2)]


def test_a_change_at_the_start_of_a_version_replaces_it(
    make_project: MakeProject, reader: Reader
) -> None:
    files = {
        "models/rows.sql": """
            select id, {{ env_var('V') }} as amount, timestamp '2024-01-01' as as_of
            from values (1), (2) as t (id) where {{ env_var('V') }} < 3
        """,
        "snapshots/kept.sql": """
            {% snapshot kept %}
            {{ config(strategy='check', unique_key='id', check_cols=['amount'], updated_at='as_of',
                hard_deletes='invalidate', hard_deletes_at='max(as_of)') }}
            select * from {{ ref('rows') }}
            {% endsnapshot %}
        """,
    }
    project = make_project("replaced", files, output={"poll_interval": 1})
    with pytest.MonkeyPatch.context() as patch:
        for version in "12":
            patch.setenv("V", version)
            project.dbt("build").succeeded()
        patch.setenv("V", "3")
        assert "hard_deletes_at has no value" in project.dbt("build").failed().text
    rows = reader.table(project.schema, "kept").rows
    assert sorted((r["id"], r["amount"], r["dbt_valid_to"]) for r in rows) == [
        (1, 2, None),
        (2, 2, None),
    ]


KEPT = """
    {{% snapshot by_{strategy} %}}
    {{{{ config(strategy='{strategy}', unique_key='id', updated_at='as_of', {more}
        hard_deletes='invalidate', hard_deletes_at='max(as_of)') }}}}
    select * from {{{{ ref('rows') }}}}
    {{% endsnapshot %}}
"""


def test_a_key_that_is_deleted_at_the_start_of_its_version_can_come_back(
    make_project: MakeProject, reader: Reader
) -> None:
    files = {
        "models/rows.sql": """
            select id, timestamp '2024-01-01' as as_of
            from values (1), (2) as t (id) where id <> {{ env_var('GONE') }}
        """,
        "snapshots/by_timestamp.sql": KEPT.format(strategy="timestamp", more=""),
        "snapshots/by_check.sql": KEPT.format(strategy="check", more="check_cols='all',"),
    }
    project = make_project("came_back", files, output={"poll_interval": 1})
    both = [(1, None), (2, None)]
    with pytest.MonkeyPatch.context() as patch:
        for gone, expected in ((0, both), (1, both[1:]), (0, both)):
            patch.setenv("GONE", str(gone))
            project.dbt("build").succeeded()
            for name in ("by_timestamp", "by_check"):
                rows = reader.table(project.schema, name).rows
                assert sorted((row["id"], row["dbt_valid_to"]) for row in rows) == expected
