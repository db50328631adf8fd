"""The var `wap_alerts`: legal and illegal values."""

from __future__ import annotations

from typing import Any

import pytest

from sparkwap.core.errors import ConfigError
from sparkwap.gate.alert_settings import PORTS, AlertSettings, Chat, Mail, Value, Webhook, parse
from sparkwap.gate.settings import GateSettings, settings_of

SLACK = {"name": "team", "type": "slack", "url": "{{ env_var('HOOK') }}"}
MAIL = {
    "name": "mail",
    "type": "email",
    "host": "smtp.example.com",
    "from": "dbt@example.com",
    "to": ["owner", "data@example.com"],
}


def refused(**given: Any) -> str:
    with pytest.raises(ValueError) as error:
        parse(given)
    return str(error.value)


def test_all_settings_are_read() -> None:
    settings = parse(
        {
            "held_hours": "36",
            "quarantine": 0.01,
            "suppress_hours": 0,
            "timeout": 3,
            "tries": 2,
            "sample_rows": 5,
            "routes": [
                {
                    **SLACK,
                    "owners": ["Data-Team"],
                    "events": ["rejected", "held"],
                    "severity": "error",
                    "targets": "prod",
                },
                {
                    "name": "own",
                    "type": "webhook",
                    "url": '{{ env_var("URL") }}',
                    "secret": "{{env_var('KEY')}}",
                },
                {**MAIL, "security": "ssl", "user": "dbt", "password": "{{ env_var('PW') }}"},
            ],
        }
    )
    team, own, mail = settings.routes
    assert (settings.held_hours, settings.quarantine, settings.suppress_hours) == (36, 0.01, 0)
    assert (settings.timeout, settings.tries, settings.sample_rows) == (3, 2, 5)
    assert isinstance(team, Chat)
    assert isinstance(own, Webhook)
    assert team.url == Value(variable="HOOK")
    assert (team.owners, team.targets) == (frozenset({"data-team"}), frozenset({"prod"}))
    assert (team.events, team.severity) == (frozenset({"rejected", "held"}), "error")
    assert (own.url, own.secret) == (Value(variable="URL"), Value(variable="KEY"))
    assert isinstance(mail, Mail)
    assert (mail.port, PORTS[mail.security], mail.password) == (None, 465, Value(variable="PW"))
    assert [to.text for to in mail.to] == ["owner", "data@example.com"]


def test_defaults() -> None:
    assert parse({}) == AlertSettings()
    (route,) = parse({"routes": [SLACK]}).routes
    assert route == Chat(name="team", type="slack", url=Value(variable="HOOK"))
    assert len(route.events) == 6


@pytest.mark.parametrize(
    ("route", "complaint"),
    [
        ({**SLACK, "type": "sms"}, "routes[0].type: 'sms'; legal: slack, teams, email, webhook"),
        ({**SLACK, "owner": "x"}, "no setting 'owner'; did you mean owners?"),
        ({**SLACK, "name": ""}, "routes[0].name: it is missing"),
        (
            {**SLACK, "events": ["rejectd"]},
            "routes[0].events[0]: 'rejectd'; legal: rejected, refused",
        ),
        ({**SLACK, "severity": "bad"}, "routes[0].severity: 'bad'; legal: warning, error"),
        ({**MAIL, "to": []}, "routes[0].to: it must be a list of mail addresses"),
        ({**MAIL, "port": 99999}, "routes[0].port: 99999; legal: a number from 1 to 65535"),
        ({**MAIL, "password": "{{ env_var('P') }}"}, "routes[0].password: there is no user"),
        (
            {**MAIL, "user": "u", "password": "{{ env_var('P') }}", "security": "none"},
            "security none would send it unencrypted; legal: starttls, ssl",
        ),
        ({**MAIL, "host": "{{ var('h') }}"}, "routes[0].host: it is missing, or neither"),
    ],
)
def test_illegal_routes(route: dict[str, Any], complaint: str) -> None:
    assert complaint in refused(routes=[route])


def test_one_error_lists_all_problems() -> None:
    assert "suppress_hours: 20000000; legal" in refused(suppress_hours=20_000_000)
    said = refused(timeout=0, suppres_hours=1, held_hours="soon", routes=[SLACK, SLACK])
    for part in (
        "timeout: 0",
        "did you mean suppress_hours",
        "held_hours: 'soon'",
        "called 'team'",
    ):
        assert part in said


def test_a_literal_secret_is_refused_and_not_repeated() -> None:
    secret = "https://hooks.example.com/services/T000/B000/XXXX"
    said = refused(routes=[{**SLACK, "url": secret}])
    assert "it is a secret, so it must be" in said
    assert secret not in said
    with pytest.raises(ConfigError) as error:
        GateSettings.from_vars({"wap_alerts": {"routes": [{**SLACK, "url": secret}]}})
    assert "wap_alerts: routes[0].url" in str(error.value)
    assert secret not in str(error.value)


def test_a_variable_is_read_when_it_is_needed() -> None:
    assert Value(variable="HOOK").read({"HOOK": "x"}) == "x"
    with pytest.raises(ConfigError, match="variable HOOK is not set"):
        Value(variable="HOOK").read({"HOOK": ""})


def test_settings_of_the_project_are_those_of_a_run() -> None:
    raw = {
        "name": "shop",
        "vars": {
            "wap_publish": "lineage",
            "wap_alerts": {"held_hours": 1},
            "shop": {"wap_alerts": {"held_hours": 2}},
            "other": {"wap_alerts": {"held_hours": 3}},
        },
    }
    assert settings_of(raw, {}).alerts.held_hours == 2
    assert settings_of(raw, {"wap_alerts": {"held_hours": 4}}).alerts.held_hours == 4
    assert settings_of({"name": "shop", **raw, "vars": {"wap_alerts": {}}}, {}).publish == "run"
    assert settings_of({"name": "x"}, {}) == GateSettings()
