import re
from pathlib import Path

import pytest

from sparkwap.core.errors import ConfigError
from sparkwap.gate import settings
from sparkwap.gate.settings import GateSettings, Limits, Upkeep, from_environment, of_one_call


def errors_of(variables: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as error:
        GateSettings.from_vars(variables)
    return str(error.value)


def test_defaults() -> None:
    assert GateSettings.from_vars({}) == GateSettings()
    assert GateSettings.from_vars({"landing": "x", "wapiti": 1}) == GateSettings()
    assert GateSettings() == GateSettings("run", "known", False, None, 90, True, "hold")


def test_all_settings_are_read() -> None:
    settings = GateSettings.from_vars(
        {
            "wap_publish": "lineage",
            "wap_warnings": "hold",
            "wap_require_tests": True,
            "wap_branch": "pr_7",
            "wap_tag_retention_days": 7,
            "wap_guard": False,
            "wap_rebuilds": 5,
            "wap_rebuild_wait": 0.5,
            "wap_rebuild_timeout": 900,
            "wap_reads": "strict",
            "wap_sweep": "end_of_run",
            "wap_sweep_after_days": 1,
            "wap_sweep_named_after_days": "2",
            "wap_sweep_files_after_days": 4,
            "wap_sweep_manifests_after_days": 5,
            "wap_maintain": "end_of_run",
            "wap_maintain_budget": "5%",
            "wap_maintain_keep_days": 3,
            "wap_maintain_keep_publishes": "100000",
            "wap_disabled_tests": "publish",
            "wap_log": "none",
            "wap_openlineage": "end_of_run",
            "wap_actor": "never",
        }
    )
    assert settings == GateSettings(
        "lineage",
        "hold",
        True,
        "pr_7",
        7,
        False,
        disabled_tests="publish",
        rebuilds=5,
        rebuild_wait=0.5,
        rebuild_timeout=900.0,
        reads="strict",
        sweep="end_of_run",
        sweep_limits=Limits(1, 2, 4, 5),
        upkeep=Upkeep("end_of_run", None, 0.05, 3, 100_000),
        log="none",
        openlineage="end_of_run",
        actor="never",
    )


def test_text_from_env_var_is_read() -> None:
    settings = GateSettings.from_vars(
        {
            "wap_require_tests": "True",
            "wap_tag_retention_days": "30",
            "wap_branch": "",
            "wap_rebuilds": "0",
            "wap_rebuild_wait": "0",
        }
    )
    assert settings == GateSettings(
        require_tests=True, tag_retention_days=30, rebuilds=0, rebuild_wait=0.0
    )


def test_the_budget_of_a_maintenance_is_seconds_or_a_share() -> None:
    def budget(value: object) -> tuple[float | None, float]:
        upkeep = GateSettings.from_vars({"wap_maintain_budget": value}).upkeep
        return upkeep.seconds, upkeep.share

    assert budget(None) == (None, 0.1)
    assert budget("12.5 %") == (None, 0.125)
    assert budget(120) == (120, 0.0)
    assert budget("120") == (120, 0.0)


def test_a_key_without_a_value() -> None:
    nothing: dict[str, object] = dict.fromkeys(
        ["wap_publish", "wap_warnings", "wap_require_tests", "wap_branch", "wap_guard"]
    )
    assert GateSettings.from_vars(nothing) == GateSettings()
    assert GateSettings.from_vars({"wap_tag_retention_days": None}).tag_retention_days is None


@pytest.mark.parametrize(
    ("key", "value", "legal"),
    [
        ("wap_publish", "always", "run, lineage, never"),
        ("wap_publish", False, "run, lineage, never"),
        ("wap_publish", "", "run, lineage, never"),
        ("wap_publish", ["run"], "run, lineage, never"),
        ("wap_sweep", "always", "never, end_of_run"),
        ("wap_sweep_after_days", 0, "1 or more"),
        ("wap_sweep_files_after_days", "soon", "1 or more"),
        ("wap_maintain", "always", "never, end_of_run"),
        ("wap_openlineage", "always", "never, end_of_run"),
        ("wap_actor", "sometimes", "record, never"),
        ("wap_maintain_budget", "much", "a share of the runs' time such as 10%"),
        ("wap_maintain_budget", "101%", "a share of the runs' time such as 10%"),
        ("wap_maintain_budget", -1, "a share of the runs' time such as 10%"),
        ("wap_maintain_keep_days", 0, "1 or more"),
        ("wap_maintain_keep_publishes", 0, "1 or more"),
        ("wap_warnings", "ignore", "known, publish, hold"),
        ("wap_disabled_tests", True, "hold, publish"),
        ("wap_require_tests", "yes", "true, false"),
        ("wap_require_tests", 1, "true, false"),
        ("wap_branch", "main", "a lower-case letter"),
        ("wap_branch", 123, "a lower-case letter"),
        ("wap_tag_retention_days", 0, "1 or more"),
        # Such an age is before the first date of Python's calendar.
        ("wap_tag_retention_days", 999999, "at most 36500"),
        ("wap_sweep_files_after_days", 36501, "at most 36500"),
        ("wap_rebuilds", -1, "a whole number"),
        ("wap_rebuilds", 1.5, "a whole number"),
        ("wap_rebuilds", True, "a whole number"),
        ("wap_rebuild_wait", -0.1, "seconds, 0 or more"),
        ("wap_rebuild_wait", "nan", "seconds, 0 or more"),
        ("wap_rebuild_wait", float("inf"), "seconds, 0 or more"),
        ("wap_rebuild_wait", True, "seconds, 0 or more"),
        ("wap_rebuild_wait", "soon", "seconds, 0 or more"),
        ("wap_rebuild_timeout", -1, "seconds, 0 for no limit"),
        ("wap_reads", "maybe", "warn, ignore, strict"),
        ("wap_tag_retention_days", True, "1 or more"),
        ("wap_tag_retention_days", 1.5, "1 or more"),
        ("wap_tag_retention_days", "ever", "1 or more"),
        ("wap_guard", "off", "true, false"),
    ],
)
def test_an_illegal_value_names_key_value_and_legal_values(
    key: str, value: object, legal: str
) -> None:
    message = errors_of({key: value})
    assert f"{key}: {value!r} is not allowed" in message
    assert legal in message


def test_an_unknown_key_gets_a_suggestion_or_the_list() -> None:
    assert "wap_publsh: there is no such setting; did you mean wap_publish?" in errors_of(
        {"wap_publsh": "run"}
    )
    assert (
        "wap_xyzzy: there is no such setting; legal: wap_actor, wap_alerts, wap_audits, "
        "wap_audits_incremental, wap_audits_whole_days" in errors_of({"wap_xyzzy": 1})
    )


def test_one_error_lists_all_illegal_settings() -> None:
    message = errors_of(
        {"wap_publish": "x", "wap_guard": 3, "wap_branch": "A", "wap_require_test": True}
    )
    assert [line.split(":")[0].strip() for line in message.splitlines()[1:-1]] == [
        "wap_publish",
        "wap_branch",
        "wap_guard",
        "wap_require_test",
    ]


def test_the_environment_has_the_settings_of_one_call() -> None:
    given = {
        "SPARKWAP_BRANCH": "march",
        "SPARKWAP_PUBLISH": "never",
        "SPARKWAP_WARNINGS": "",
        "SPARKWAP_LANDING_UNTIL": "2024-01-31",
        "SPARKWAP_JARS": "/jars",
        "PATH": "/bin",
    }
    assert from_environment(given) == {"wap_branch": "march", "wap_publish": "never"}
    assert set(of_one_call(given)) == {
        "SPARKWAP_BRANCH",
        "SPARKWAP_PUBLISH",
        "SPARKWAP_LANDING_UNTIL",
    }


@pytest.mark.parametrize(
    ("variable", "text", "why"),
    [
        ("SPARKWAP_PUBLSH", "never", "did you mean SPARKWAP_PUBLISH?"),
        ("SPARKWAP_BRANC", "pr_1", "did you mean SPARKWAP_BRANCH?"),
        ("SPARKWAP_WAP_PUBLISH", "never", "did you mean SPARKWAP_PUBLISH?"),
        ("SPARKWAP_LANDING_UNTILL", "2024-01-31", "did you mean SPARKWAP_LANDING_UNTIL?"),
        ("SPARKWAP_REQUIRE_TESTS", "true", "set the var wap_require_tests"),
        ("SPARKWAP_GUARD", "true", "set the var wap_guard"),
        ("SPARKWAP_PUBLISH", "", "it has no value"),
        ("SPARKWAP_BRANCH", "", "it has no value"),
    ],
)
def test_a_variable_that_would_be_ignored_is_an_error(variable: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"nothing was run(?s:.)*{variable}: .*{re.escape(why)}"):
        of_one_call({variable: text})


def test_other_variables_are_left_alone() -> None:
    source = Path(settings.__file__).parents[2]
    texts = [path.read_text() for path in source.rglob("*.py")]
    own = {name for text in texts for name in re.findall(r'"(SPARKWAP_[A-Z_]*[A-Z])"', text)}
    assert len(own) > 9
    for name in (*own, "SPARKWAP_TEST_CATALOG", "SPARKWAP_THREADS", "SPARKWAP_PR_BRANCH"):
        of_one_call({name: "x"})
