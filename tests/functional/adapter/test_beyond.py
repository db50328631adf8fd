"""What dbt-spark gets wrong on Iceberg and dbt's suite does not ask for."""

from __future__ import annotations

import json

import pytest
from dbt.tests.util import check_relations_equal, run_dbt
from dbt_common.exceptions import DbtRuntimeError

_GONE_TOO = """
seeds: [{name: gone_too, config: {post_hook: 'drop table {{ this }}'}}]
"""
_SNAPSHOT = """
{{% snapshot {name} %}}
{{{{ config(alias='history', schema='{name}', unique_key='id',
            strategy='check', check_cols='all') }}}}
select {value} as id
{{% endsnapshot %}}
"""


class TestSnapshotsOfOneName:
    @pytest.fixture(scope="class")
    def snapshots(self):
        return {
            f"{name}.sql": _SNAPSHOT.format(name=name, value=value)
            for value, name in enumerate(("one", "two"))
        }

    def test_each_keeps_its_own_rows(self, project):
        run_dbt(["snapshot"])
        run_dbt(["snapshot"])
        for value, name in enumerate(("one", "two")):
            table = f"{project.test_schema}_{name}.history"
            rows = project.run_sql(f"select id from {table}", fetch="all")
            assert [row[0] for row in rows] == [value]


class TestHookThatDropsWhatWasBuilt:
    """As with dbt-spark, it is no error; nothing is left to test, to publish or to read."""

    @pytest.fixture(scope="class")
    def models(self):
        config = "{{ config(materialized='table', post_hook='drop table {{ this }}') }}"
        return {"gone.sql": f"{config} select 1 as id", "kept.sql": "select 2 as id"}

    @pytest.fixture(scope="class")
    def seeds(self):
        return {"gone_too.csv": "id\n1\n", "seeds.yml": _GONE_TOO}

    def test_the_others_are_published(self, project):
        for _ in range(2):
            results = run_dbt(["build"])
            assert {str(result.status) for result in results} == {"success"}
            found = project.run_sql(f"show tables in {project.test_schema}", fetch="all")
            assert {row[1] for row in found} <= {"kept"}
            assert project.run_sql("select id from {schema}.kept", fetch="one")[0] == 2


class TestHookThatDropsWhatIsLive:
    """Added when the model is live, the same hook would take the table from its readers."""

    @pytest.fixture(scope="class")
    def models(self):
        hook = "['drop table ' ~ this] if var('drop', false) else []"
        config = f"{{{{ config(materialized='table', post_hook={hook}) }}}}"
        return {"live.sql": f"{config} select 1 as id"}

    @pytest.fixture(scope="class")
    def seeds(self):
        hook = "{{ 'drop table ' ~ this if var('drop', false) else '' }}"
        properties = {"seeds": [{"name": "live_too", "config": {"post_hook": hook}}]}
        return {"live_too.csv": "id\n1\n", "seeds.yml": json.dumps(properties)}

    def test_it_is_refused(self, project):
        run_dbt(["build"])
        results = run_dbt(["build", "--vars", "drop: true"], expect_pass=False)
        told = {result.node.name: str(result.message) for result in results if result.node}
        for name in ("live", "live_too"):
            assert f"{name} is live, or will be once it is published" in told[name]
            assert project.run_sql(f"select id from {{schema}}.{name}", fetch="one")[0] == 1
        run_dbt(["build"])


class TestFreshnessFromMetadata:
    @pytest.fixture(scope="class")
    def models(self):
        tables = [{"name": "fed", "config": {"freshness": {"warn_after": _DAY}}}]
        source = {"name": "s", "schema": "{{ target.schema }}", "tables": tables}
        return {"sources.yml": {"version": 2, "sources": [source]}}

    def test_last_snapshot_tells_it(self, project):
        project.run_sql("create table {schema}.fed as select 1 as id")
        (result,) = run_dbt(["source", "freshness"])
        assert str(result.status) == "pass"
        assert 0 <= result.age < 24 * 60 * 60


_DAY = {"count": 1, "period": "day"}


class TestSqlHeaderOfSeveralStatements:
    @pytest.fixture(scope="class")
    def models(self):
        settings = "set spark.sql.shuffle.partitions = 3; set time zone 'Asia/Tokyo';"
        header = f"{{% call set_sql_header(config) %}}{settings}"
        config = "{{ config(materialized='table') }}"
        select = "select current_timezone() as zone"
        return {
            "zone.sql": f"{config}{header}{{% endcall %}} {select}",
            "after.sql": f"{config} {select} from {{{{ ref('zone') }}}}",
        }

    def test_it_holds_for_its_model_only(self, project):
        run_dbt(["run", "--threads", "1"])
        zone = project.run_sql("select zone from {schema}.zone", fetch="one")
        after = project.run_sql("select zone from {schema}.after", fetch="one")
        assert (zone[0], after[0]) == ("Asia/Tokyo", "UTC")


class TestCustomIncrementalStrategy:
    @pytest.fixture(scope="class")
    def macros(self):
        return {
            "mine.sql": "{% macro get_incremental_mine_sql(arg_dict) %}"
            "insert into {{ arg_dict['target_relation'] }} "
            "select id * 10 from {{ arg_dict['temp_relation'] }}{% endmacro %}"
        }

    @pytest.fixture(scope="class")
    def models(self):
        config = "{{ config(materialized='incremental', incremental_strategy='mine') }}"
        return {
            "t.sql": f"{config} select 1 as id",
            "expected.sql": "select 1 as id union all select 10 as id",
        }

    def test_its_sql_runs(self, project):
        run_dbt(["run"])
        run_dbt(["run"])
        check_relations_equal(project.adapter, ["t", "expected"])


class TestDropOfALiveSchema:
    @pytest.fixture(scope="class")
    def models(self):
        return {"kept.sql": "{{ config(materialized='table') }} select 1 as id"}

    @pytest.fixture(scope="class")
    def project_config_update(self):
        relation = "api.Relation.create(schema=target.schema)"
        drop = (
            f"{{% if var('drop', false) %}}{{% do adapter.drop_schema({relation}) %}}{{% endif %}}"
        )
        return {"on-run-start": [drop]}

    def test_a_run_cannot_drop_it(self, project):
        run_dbt(["run"])
        with pytest.raises(DbtRuntimeError, match="The guard refused to drop schema"):
            run_dbt(["run", "--vars", "drop: true"])
        assert project.run_sql("select id from {schema}.kept", fetch="one")[0] == 1
