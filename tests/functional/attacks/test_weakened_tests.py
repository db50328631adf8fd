"""Attack: a test that is there, runs and passes, and could do nothing else.

The class: by its config no rows whatsoever make it fail.
"""

import pytest
from vocabulary import MakeProject, Reader

MODEL = "{{ config(materialized='table') }} select cast(null as int) as id from range(100)"
CONFIGS = {
    "limited": "limit: 5, error_if: '>8', warn_if: '>8'",
    "nowhere": "where: 1 = 2",
    "unreachable": "error_if: '> 3 and 1 = 0'",
}


@pytest.mark.smoke
def test_a_test_that_cannot_fail_lets_nothing_through(
    make_project: MakeProject, reader: Reader
) -> None:
    tests = [
        f"{{name: {name}, columns: [{{name: id, data_tests: [{{not_null: {{config: {{{config}"
        "}}}]}]}"
        for name, config in CONFIGS.items()
    ]
    files = {f"models/{name}.sql": MODEL for name in CONFIGS}
    project = make_project("weak", {**files, "models/all.yml": f"models: [{', '.join(tests)}]"})
    built = project.dbt("build", wap_publish="lineage").failed()
    assert {name: built.verdict(name) for name in CONFIGS} == dict.fromkeys(CONFIGS, "rejected")
    assert reader.look(project.schema) == {}
    assert all("config has" in built.reason(name) for name in CONFIGS)
