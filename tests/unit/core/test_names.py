import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.core import names
from sparkwap.core.errors import ConfigError

RUN = "1A2b3c4d-9e8f-4000-8000-000000000000"
SCHEMAS = st.from_regex(r"[a-z_][a-z0-9_]{0,20}", fullmatch=True)
BRANCHES = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True).filter(
    lambda name: names.branch_problem(name) is None
)


def test_names_of_a_run() -> None:
    assert names.short_run_id(RUN) == "1a2b3c4d"
    assert names.audit_branch(RUN, None) == "wap_1a2b3c4d"
    assert names.audit_branch(RUN, "") == "wap_1a2b3c4d"
    assert names.audit_branch(RUN, "pr_123") == "pr_123"
    assert names.publish_tag(RUN) == "wap_pub_1a2b3c4d"
    assert names.base_tag("pr_123") == "wap_base_pr_123"
    assert names.abort_tag(RUN) == f"wap_undone_{RUN}"
    assert names.publish_of_abort_tag(f"wap_undone_{RUN}") == RUN
    assert names.publish_of_abort_tag("wap_pub_1a2b3c4d") is None
    assert names.side_schema("insurance", "pr_123") == "insurance__pr_123"


@pytest.mark.parametrize("run_id", ["", "main", "1a2b", "zzzzzzzz-0000"])
def test_an_invalid_run_id_is_refused(run_id: str) -> None:
    with pytest.raises(ConfigError, match="is not a run id"):
        names.short_run_id(run_id)


ILLEGAL = ["main", "a__b", "Pr_1", "1pr", "_pr", "pr-1", "pr 1", "pr\n", "é", "a" * 65, "pr.1"]
RESERVED = ["wap_base_pr", "wap_pub_1a2b3c4d", "wap_undone_1a2b"]


@pytest.mark.parametrize("branch", [*ILLEGAL, *RESERVED])
def test_an_illegal_branch_is_refused_with_the_rule(branch: str) -> None:
    with pytest.raises(ConfigError) as error:
        names.audit_branch(RUN, branch)
    assert repr(branch) in str(error.value)
    assert names.BRANCH_RULE in str(error.value)


def test_the_longest_branch_is_allowed() -> None:
    assert names.audit_branch(RUN, "a" * 64) == "a" * 64


@given(SCHEMAS, BRANCHES)
def test_a_side_schema_gives_its_schema_back(schema: str, branch: str) -> None:
    assert names.split_side_schema(names.side_schema(schema, branch), branch) == schema


@given(BRANCHES, BRANCHES)
def test_a_side_schema_belongs_to_one_branch(one: str, other: str) -> None:
    if one != other:
        assert names.split_side_schema(names.side_schema("s", one), other) is None


@pytest.mark.parametrize("name", ["insurance", "__pr_1", "insurance_pr_1", "insurance__pr_12", ""])
def test_other_schemas_are_not_side_schemas(name: str) -> None:
    assert names.split_side_schema(name, "pr_1") is None


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("wap_1a2b3c4d", (True, False, None)),
        ("wap_1a2b3c4de", (False, False, None)),
        ("wap_mine", (False, False, None)),
        ("pr_1", (False, False, None)),
        ("wap_pub_1a2b3c4d", (False, True, None)),
        ("wap_pub_release", (False, False, None)),
        ("wap_base_pr_1", (False, False, "pr_1")),
        ("wap_base_", (False, False, None)),
    ],
)
def test_a_name_shows_its_kind(name: str, found: tuple[bool, bool, str | None]) -> None:
    told = (names.is_run_branch(name), names.is_publish_tag(name), names.branch_of_base_tag(name))
    assert told == found


@given(st.uuids(), st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True))
def test_names_are_parsed_back(run: uuid.UUID, branch: str) -> None:
    run_id = str(run)
    assert names.is_run_branch(names.audit_branch(run_id, None))
    assert names.is_publish_tag(names.publish_tag(run_id))
    assert names.branch_of_base_tag(names.base_tag(branch)) == branch
    assert names.run_of_folder(f"{branch}-{names.short_run_id(run_id)}") == run_id[:8]
    thrown_away = names.throw_away_schema(run_id, "0" * 32, branch)
    assert names.run_of_throw_away(thrown_away, branch) == run_id[:8]
    assert names.run_of_throw_away(names.side_schema("shop", branch), branch) is None


def test_names_that_differ_in_case_only_are_refused() -> None:
    names.require_own([("shop", "twin"), ("shop2", "Twin"), ("shop", "other")])
    with pytest.raises(ConfigError, match=r"in case only: shop\.Twin and shop\.twin\."):
        names.require_own([("shop", "twin"), ("shop", "Twin"), ("shop", "other")])
    with pytest.raises(ConfigError, match=r"Shop\.twin and shop\.twin"):
        names.require_own([("shop", "twin"), ("Shop", "twin")])
    with pytest.raises(ConfigError, match=r"shop\.Twin \(which is in the lake\) and shop\.twin"):
        names.require_own([("shop", "twin")], [("shop", "Twin")])


def test_the_schema_of_the_ledger_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^Wap_Ledger\.b, wap_ledger\.a would be in"):
        names.require_own([("wap_ledger", "a"), ("Wap_Ledger", "b"), ("shop", "c")])
