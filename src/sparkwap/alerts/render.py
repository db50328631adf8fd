"""Renders a message for each type of route: Slack blocks, an Adaptive Card, mail, JSON. Pure.

`sparkwap.core.redaction` removes secrets from all texts. A message that is too long for its route
shows fewer tables, and the number of tables that it leaves out.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from email.message import EmailMessage
from email.utils import format_datetime
from functools import cache
from typing import Any

from jinja2 import Environment, Template

from sparkwap.alerts.model import TITLES, Event, FailedRows, FailedTest, Message, NextCommand
from sparkwap.core import next_command
from sparkwap.core.names import short_run_id
from sparkwap.core.redaction import redact
from sparkwap.core.text import counted

SHOWN = 20
"""Greatest number of tables in one message."""

SIGNATURE = "X-Sparkwap-Signature"
MESSAGE_ID = "X-Sparkwap-Message"

_SLACK_BYTES = 35_000
_SLACK_TEXT = 2_900
_SLACK_HEADER = 150
# Slack takes 50 blocks; each table has one, and there are three more.
_SLACK_SAMPLES = 25
_TEAMS_BYTES = 25_000
_JSON_BYTES = 200_000
_COMMANDS = 4
_SAMPLES = 3
_TESTS = 5


def title(message: Message) -> str:
    """Return a line such as ``2 tables rejected, 1 held too long (run 1a2b3c4d on prod)``."""
    counts = Counter(event.kind for event in message.all_events)
    first, *others = [f"{count} {TITLES[kind]}" for kind, count in counts.items()]
    number, _, rest = first.partition(" ")
    noun = "run" if message.events[0].kind == "failed" else "table"
    head = f"{number} {noun}{'' if number == '1' else 's'} {rest}"
    where = f" on {message.target}" if message.target else ""
    return f"{', '.join([head, *others])} (run {_short(message.run_id)}{where})"


# --- Slack --------------------------------------------------------------------------------------


def slack(message: Message) -> bytes:
    """Return the body for a Slack incoming webhook: Block Kit, and ``text`` for notifications."""
    return _fitting(message, _slack, _SLACK_BYTES)


def _slack(message: Message) -> dict[str, Any]:
    heading = redact(title(message))
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": heading[:_SLACK_HEADER]}}
    ]
    samples = 0
    for event in message.events:
        lines = [f"*{_mrkdwn(event.subject)}*  {TITLES[event.kind]}"]
        lines += [f"• {_mrkdwn(line)}" for line in _why(event)]
        blocks.append(_section("\n".join(lines)))
        tables = ["\n".join(rows) for _, sample in _samples(event) if (rows := _rows(sample))]
        tables = tables[: _SLACK_SAMPLES - samples]
        samples += len(tables)
        blocks += [_section(_code_block(table)) for table in tables]
    commands = _commands(message.events)
    if commands:
        lines = [f"{step.purpose}\n{_code_block(step.command)}" for step in commands]
        blocks.append(_section("\n".join(["*Next*", *lines])))
    context = [_mrkdwn(line) for line in _footer(message)]
    blocks.append({"type": "context", "elements": [_text("\n".join(context))]})
    return {"text": heading, "blocks": blocks}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _text(text)}


def _text(text: str) -> dict[str, Any]:
    text = redact(text)
    if len(text) > _SLACK_TEXT:
        # Without the closing fence, Slack would show the rest of the message as code.
        text = text[:_SLACK_TEXT] + " ..."
        text += "\n```" if text.count("```") % 2 else ""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _code_block(text: str) -> str:
    return f"```{_mrkdwn(text).replace('```', '` ` `')}```"


def _mrkdwn(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# --- Teams --------------------------------------------------------------------------------------


def teams(message: Message) -> bytes:
    """Return the body for a Teams webhook of the Workflows app: an Adaptive Card."""
    return _fitting(message, _teams, _TEAMS_BYTES)


def _teams(message: Message) -> dict[str, Any]:
    color = "attention" if message.severity == "error" else "warning"
    body: list[dict[str, Any]] = [_runs(title(message), weight="bolder", size="large", color=color)]
    for event in message.events:
        items = [_runs(f"{event.subject}  {TITLES[event.kind]}", weight="bolder")]
        items += [_runs(line) for line in _why(event)]
        for _, sample in _samples(event):
            items += [_runs(line, fontType="monospace", size="small") for line in _rows(sample)]
        body.append({"type": "Container", "separator": True, "items": items})
    for step in _commands(message.events):
        body.append(_runs(step.purpose, isSubtle=True))
        body.append(_runs(step.command, fontType="monospace"))
    body += [_runs(line, isSubtle=True, size="small") for line in _footer(message)]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": body,
    }
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return {"type": "message", "attachments": [attachment]}


def _runs(text: str, **style: Any) -> dict[str, Any]:
    # A TextBlock would render `_` and `*` in names as Markdown; a TextRun shows plain text.
    run = {"type": "TextRun", "text": redact(text), **style}
    return {"type": "RichTextBlock", "inlines": [run]}


# --- webhook ------------------------------------------------------------------------------------


def webhook(message: Message) -> bytes:
    """Return the body for a webhook: the whole message as JSON; see ``docs/alerts.md``."""
    return _fitting(message, _webhook, _JSON_BYTES)


def _webhook(message: Message) -> dict[str, Any]:
    return {
        "version": 1,
        "id": message.message_id,
        "title": redact(title(message)),
        "severity": message.severity,
        "route": message.route,
        "run_id": message.run_id,
        "target": message.target,
        "owners": list(message.owners),
        "suppressed": message.known,
        "left_out": len(message.left_out),
        "events": [
            {
                "kind": event.kind,
                "severity": event.severity,
                "subject": event.subject,
                "branch": event.branch,
                "at": event.at.isoformat(),
                "reasons": [redact(reason) for reason in event.reasons],
                "tests": [_test(test) for test in event.tests],
                "state": event.state,
                "next": [
                    {"purpose": step.purpose, "command": redact(step.command)}
                    for step in event.commands
                ],
            }
            for event in message.events
        ],
    }


def _test(test: FailedTest) -> dict[str, Any]:
    sample = test.sample
    return {
        "id": test.test_id,
        "name": test.name,
        "failures": test.failures,
        "sample": sample
        and {
            "columns": list(sample.columns),
            "rows": [[redact(cell) for cell in row] for row in sample.rows],
            "withheld": sample.withheld,
        },
    }


def signature(body: bytes, secret: str, at: int) -> str:
    """Return the value of `SIGNATURE`: ``t=<time>,v1=<HMAC-SHA256 of "<time>.<body>" in hex>``.

    The signature covers the time, so a receiver can refuse a replay of an old message.
    """
    signed = f"{at}.".encode() + body
    return f"t={at},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


# --- mail ---------------------------------------------------------------------------------------


def mail(message: Message, sender: str, to: Sequence[str]) -> EmailMessage:
    """Return a mail with plain text and HTML."""
    shown = _cut(message, SHOWN)
    found = EmailMessage()
    found["Subject"] = _one_line(f"[sparkwap] {redact(title(message))}")
    found["From"] = _one_line(sender)
    found["To"] = ", ".join(_one_line(address) for address in to)
    found["Date"] = format_datetime(max(event.at for event in message.events))
    domain = sender.rpartition("@")[2].strip("> ") or "sparkwap"
    # The same in each try, so that a mail that arrives twice is shown once.
    found["Message-ID"] = f"<{message.message_id}@{domain}>"
    # Vacation notes and ticket systems do not answer such a mail.
    found["Auto-Submitted"] = "auto-generated"
    found.set_content(redact(plain(shown)))
    html = _html().render(
        title=title(message),
        events=shown.events,
        titles=TITLES,
        why=_why,
        samples=_samples,
        commands=_commands(shown.events),
        footer=_footer(shown),
    )
    found.add_alternative(redact(html), subtype="html")
    return found


def plain(message: Message) -> str:
    """Return the message as plain text."""
    lines = [title(message), ""]
    for event in message.events:
        lines.append(f"{event.subject}  {TITLES[event.kind]}")
        lines += [f"  {line}" for line in _why(event)]
        for _, sample in _samples(event):
            lines += [f"    {line}" for line in _rows(sample)]
        lines.append("")
    commands = _commands(message.events)
    if commands:
        lines.append("Next:")
        for step in commands:
            lines += [f"  {step.purpose}", f"    {step.command}"]
        lines.append("")
    return "\n".join([*lines, *_footer(message)]) + "\n"


@cache
def _html() -> Template:
    # All texts are escaped, because they come from tests, errors and rows.
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(_PAGE)


_PAGE = """\
<!doctype html>
<html><body style="font-family: sans-serif; font-size: 14px">
<h2>{{ title }}</h2>
{% for event in events %}
<h3 style="margin-bottom: 4px">{{ event.subject }} <small>{{ titles[event.kind] }}</small></h3>
<ul style="margin-top: 0">
{% for line in why(event) %}
<li>{{ line }}</li>
{% endfor %}
</ul>
{% for test, sample in samples(event) if sample.columns %}
<table border="1" cellpadding="4" style="border-collapse: collapse; font-size: 12px">
<caption>{{ test.name }}</caption>
<tr>{% for column in sample.columns %}<th>{{ column }}</th>{% endfor %}</tr>
{% for row in sample.rows %}
<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</table>
{% endfor %}
{% endfor %}
{% for command in commands %}
<p style="margin-bottom: 0">{{ command.purpose }}</p>
<pre style="margin-top: 2px">{{ command.command }}</pre>
{% endfor %}
<p style="color: #666">{% for line in footer %}{{ line }}<br>{% endfor %}</p>
</body></html>
"""


# --- parts of all types -------------------------------------------------------------------------


def _why(event: Event) -> list[str]:
    named = " ".join(event.reasons)
    tests = [
        f"test {test.name} failed{_counted(test)}" for test in event.tests if test.name not in named
    ]
    withheld = [
        f"{test.name}: sample {sample.withheld}"
        for test, sample in _samples(event)
        if sample.withheld
    ]
    more = len(tests) - _TESTS
    tests = [*tests[:_TESTS], *([f"and {more} more tests"] if more > 0 else [])]
    return [*event.reasons, *tests, *withheld]


def _counted(test: FailedTest) -> str:
    return "" if test.failures is None else f" ({counted(test.failures, 'row')})"


def _samples(event: Event) -> list[tuple[FailedTest, FailedRows]]:
    found = [(test, test.sample) for test in event.tests if test.sample is not None]
    return found[:_SAMPLES]


def _rows(sample: FailedRows) -> list[str]:
    lines = (sample.columns, *sample.rows) if sample.columns else ()
    return [" | ".join(cells) for cells in lines]


def _commands(events: Iterable[Event]) -> list[NextCommand]:
    return list(dict.fromkeys(step for event in events for step in event.commands))[:_COMMANDS]


def _footer(message: Message) -> list[str]:
    lines = []
    branches = dict.fromkeys(event.branch for event in message.events if event.branch)
    if message.left_out:
        one = next(iter(branches)) if len(branches) == 1 else ""
        status = next_command.operation("wap_status", one)
        lines.append(f"and {len(message.left_out):,} more: {status}")
    if message.known:
        lines.append(f"{message.known:,} more of the same run, which were sent before")
    states = dict.fromkeys(event.state for event in message.events if event.state)
    lines.append(" ".join(states))
    where = [f"run {message.run_id}", *(f"branch {branch}" for branch in branches)]
    if message.owners:
        where.append(f"for {', '.join(message.owners)}")
    return [*filter(None, lines), ", ".join(where)]


# --- size ---------------------------------------------------------------------------------------


def _fitting(message: Message, render: Callable[[Message], dict[str, Any]], limit: int) -> bytes:
    """Return the body with as many tables as fit; at least with one table without samples."""
    for shown in (SHOWN, 10, 5, 2, 1):
        body = _json(render(_cut(message, shown)))
        if len(body) <= limit:
            return body
    bare = _cut(message, 1)
    event = bare.events[0]
    tests = tuple(replace(test, sample=None) for test in event.tests[:SHOWN])
    bare = replace(bare, events=(replace(event, tests=tests),))
    return _json(render(bare))


def _cut(message: Message, shown: int) -> Message:
    return replace(message, events=message.events[:shown], left_out=message.events[shown:])


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _short(run_id: str) -> str:
    try:
        return short_run_id(run_id)
    except Exception:
        return run_id[:8]
