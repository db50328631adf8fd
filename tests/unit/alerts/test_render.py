"""The body for each type of route has its format and stays within its limits."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace
from typing import Any

from sparkwap.alerts import render
from sparkwap.alerts.model import Event, Message, NextCommand
from sparkwap.core.redaction import remember

from .conftest import RUN, event, failed, message, sample

WAYS = (
    NextCommand("after a fix", "dbt retry"),
    NextCommand("discard it", "dbt run-operation wap_discard"),
)


def rejection(subject: str = "shop.orders", **more: Any) -> Event:
    given = {
        "reasons": ("test orders_have_ids failed (3 rows)",),
        "tests": (failed(failures=3, sample=sample(("<b>&1",), ("NULL",))),),
        "commands": WAYS,
        "state": "Readers of main see the state before this run.",
        **more,
    }
    return event(subject, **given)


def many(count: int, **more: Any) -> Message:
    return message(*(rejection(f"shop.table_{n:03}", **more) for n in range(count)))


def test_the_title_counts_the_tables_of_each_kind() -> None:
    events = [event("a"), event("b"), event("c", kind="held")]
    assert render.title(message(*events)) == (
        "2 tables rejected, 1 held too long (run 1a2b3c4d on prod)"
    )
    assert render.title(message(event(kind="failed"), target="")) == (
        "1 run not closed (run 1a2b3c4d)"
    )


class TestSlack:
    def test_the_blocks_show_tables_samples_commands_and_state(self) -> None:
        body = json.loads(render.slack(message(rejection(), known=2, owners=("jane",))))
        assert body["text"] == "1 table rejected (run 1a2b3c4d on prod)"
        kinds = [block["type"] for block in body["blocks"]]
        assert kinds == ["header", "section", "section", "section", "context"]
        assert body["blocks"][0]["text"] == {"type": "plain_text", "text": body["text"]}
        texts = [block["text"]["text"] for block in body["blocks"][1:4]]
        assert texts[0] == "*shop.orders*  rejected\n• test orders_have_ids failed (3 rows)"
        assert texts[1] == "```id\n&lt;b&gt;&amp;1\nNULL```"
        assert texts[2] == "*Next*\nafter a fix\n```dbt retry```\ndiscard it\n" + (
            "```dbt run-operation wap_discard```"
        )
        (context,) = body["blocks"][4]["elements"]
        assert "2 more of the same run, which were sent before" in context["text"]
        assert "Readers of main see the state before this run." in context["text"]
        assert f"run {RUN}, branch wap_1a2b3c4d, for jane" in context["text"]

    def test_a_body_stays_within_the_limits_of_slack(self) -> None:
        tests = tuple(failed(f"t{n}", sample=sample(*[("x" * 80,)] * 20)) for n in range(30))
        long = "x" * 300
        for found in (
            many(500),
            message(rejection(reasons=(long,), tests=tests)),
            many(20, tests=tests),
        ):
            body = json.loads(render.slack(found))
            assert len(body["blocks"]) <= 50
            for block in body["blocks"]:
                if block["type"] == "section":
                    assert len(block["text"]["text"]) <= 3000
                    assert block["text"]["text"].count("```") % 2 == 0
        assert "480 more: dbt run-operation wap_status" in json.dumps(
            json.loads(render.slack(many(500)))
        )


class TestTeams:
    def test_the_body_is_an_adaptive_card_for_the_workflows_app(self) -> None:
        body = json.loads(render.teams(message(rejection())))
        assert body["type"] == "message"
        (attachment,) = body["attachments"]
        assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
        card = attachment["content"]
        assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
        heading = card["body"][0]["inlines"][0]
        assert heading["text"] == "1 table rejected (run 1a2b3c4d on prod)"
        assert heading["color"] == "attention"
        (table,) = [one for one in card["body"] if one["type"] == "Container"]
        texts = [item["inlines"][0]["text"] for item in table["items"]]
        assert texts == [
            "shop.orders  rejected",
            "test orders_have_ids failed (3 rows)",
            "id",
            "<b>&1",
            "NULL",
        ]
        # Markdown would remove the underscores of names.
        assert not any(one["type"] == "TextBlock" for one in card["body"])

    def test_a_body_stays_within_the_limit_of_teams(self) -> None:
        tests = tuple(failed(f"t{n}", sample=sample(*[("x" * 80,)] * 20)) for n in range(20))
        for found in (many(500), many(20, tests=tests), message(rejection(tests=tests))):
            assert len(render.teams(found)) <= 28_000


class TestWebhook:
    def test_the_body_has_the_whole_message(self) -> None:
        given = message(rejection(), owners=("jane",), known=1)
        body = json.loads(render.webhook(given))
        assert body == {
            "version": 1,
            "id": given.message_id,
            "title": "1 table rejected (run 1a2b3c4d on prod)",
            "severity": "error",
            "route": "r",
            "run_id": RUN,
            "target": "prod",
            "owners": ["jane"],
            "suppressed": 1,
            "left_out": 0,
            "events": [
                {
                    "kind": "rejected",
                    "severity": "error",
                    "subject": "shop.orders",
                    "branch": "wap_1a2b3c4d",
                    "at": "2026-03-01T06:00:00+00:00",
                    "reasons": ["test orders_have_ids failed (3 rows)"],
                    "tests": [
                        {
                            "id": "test.shop.orders_have_ids",
                            "name": "orders_have_ids",
                            "failures": 3,
                            "sample": {
                                "columns": ["id"],
                                "rows": [["<b>&1"], ["NULL"]],
                                "withheld": "",
                            },
                        }
                    ],
                    "state": "Readers of main see the state before this run.",
                    "next": [
                        {"purpose": "after a fix", "command": "dbt retry"},
                        {"purpose": "discard it", "command": "dbt run-operation wap_discard"},
                    ],
                }
            ],
        }

    def test_the_signature_covers_time_and_body(self) -> None:
        expected = hmac.new(b"key", b"1700000000.body", hashlib.sha256).hexdigest()
        assert render.signature(b"body", "key", 1700000000) == f"t=1700000000,v1={expected}"


class TestMail:
    def test_a_mail_has_plain_text_and_html(self) -> None:
        found = render.mail(message(rejection()), "dbt <dbt@example.com>", ["a@b.c", "d@e.f"])
        assert found["Subject"] == "[sparkwap] 1 table rejected (run 1a2b3c4d on prod)"
        assert (found["From"], found["To"]) == ("dbt <dbt@example.com>", "a@b.c, d@e.f")
        assert found["Message-ID"] == f"<{message(rejection()).message_id}@example.com>"
        text, html = (part.get_content() for part in found.iter_parts())
        assert "shop.orders  rejected\n  test orders_have_ids failed (3 rows)\n    id\n" in text
        assert "  after a fix\n    dbt retry\n" in text
        assert "<td>&lt;b&gt;&amp;1</td>" in html
        assert "<b>&1" not in html

    def test_a_line_break_in_a_name_adds_no_header(self) -> None:
        found = render.mail(message(target="prod\nBcc: x@y.z"), "a@b.c\r\nBcc: x@y.z", ["d@e.f"])
        assert found["Bcc"] is None


def test_no_body_has_a_secret() -> None:
    remember("hunter2hunter2")
    leaky = rejection(reasons=("could not log in: password='hunter2hunter2'",))
    for body in (render.slack, render.teams, render.webhook):
        assert b"hunter2hunter2" not in body(message(leaky))
    assert "hunter2hunter2" not in render.mail(message(leaky), "a@b.c", ["a@b.c"]).as_string()


def test_a_message_that_shows_fewer_tables_has_the_number_and_id_of_all() -> None:
    long = replace(event("shop.z", kind="failed"), reasons=("x" * 40_000,))
    for given in (many(30), message(*many(30).events, long)):
        title = render.title(given)
        assert title.startswith("30 tables rejected")
        found = json.loads(render.webhook(given))
        assert (found["id"], found["title"]) == (given.message_id, title)
        assert found["left_out"] == len(given.events) - len(found["events"]) > 0
        assert json.loads(render.slack(given))["text"] == title
        assert title in render.teams(given).decode()
        mail = render.mail(given, "a@b.c", ["d@e.f"])
        bodies = [part.get_content() for part in mail.iter_parts()]
        assert all(title in text for text in (mail["Subject"], *bodies))


def test_a_cut_text_of_slack_closes_only_a_fence_that_is_open() -> None:
    def last(text: str) -> str:
        blocks = json.loads(render.slack(message(rejection(reasons=(text,)))))["blocks"]
        return next(str(b["text"]["text"]) for b in blocks if " ..." in b["text"]["text"])

    assert last("x" * 4_000).endswith("x ...")
    assert last("```" + "x" * 4_000).endswith("x ...\n```")
