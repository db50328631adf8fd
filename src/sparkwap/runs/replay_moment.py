"""The moment of a replay (``as_of``): a time, or a publish by its tag or id."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from sparkwap.core.errors import ConfigError
from sparkwap.core.names import is_publish_tag

VARIABLE = "as_of"
"""The dbt var, on the command line only."""


LEGAL = (
    "a time with its offset from UTC, such as 2024-01-31T18:00:00Z or 2024-01-31T19:00:00+01:00; "
    "the tag of a publish, wap_pub_1a2b3c4d; or the id of a publish or of its run, at least the "
    "first eight digits"
)


_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")


_ID = re.compile(r"[0-9a-f]{8}[0-9a-f-]*")


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment of a replay.

    Attributes:
        at: The time, in UTC; changes at exactly this time are included.
        publish_id: The publish, if ``as_of`` names one.
    """

    at: datetime
    publish_id: str | None = None

    def __str__(self) -> str:
        text = self.at.isoformat(timespec="microseconds").replace("+00:00", "Z")
        return f"{text} (publish {self.publish_id})" if self.publish_id else text


def asked(value: object, now: datetime) -> Moment | str | None:
    """Parse the var ``as_of``.

    Args:
        value: The value of the var, as YAML has parsed it.

    Returns:
        A moment; the first digits of a publish id or run id; None if the var has no value.

    Raises:
        ConfigError: The value is none of these, has no offset from UTC, or is in the future.
    """
    if value is None or value == "":
        return None
    # YAML parses an unquoted time or date.
    if isinstance(value, datetime):
        return _moment(value, now)
    if isinstance(value, date):
        raise _illegal(value, "a day has many moments; add the time")
    if not isinstance(value, str):
        raise _illegal(value, "it is not text; put it in quotes")
    text = value.strip()
    if _TIME.fullmatch(text):
        if len(text) == len("2024-01-31"):
            raise _illegal(value, "a day has many moments; add the time")
        try:
            return _moment(datetime.fromisoformat(text), now)
        except ValueError as error:
            raise _illegal(value, f"it is not a time: {error}") from None
    name = text.lower()
    if is_publish_tag(name):
        return name.rpartition("_")[2]
    if not _ID.fullmatch(name):
        raise _illegal(value, "it is none of these")
    return name


def _moment(time: datetime, now: datetime) -> Moment:
    if time.tzinfo is None:
        raise _illegal(time.isoformat(), "it lacks its offset from UTC; add Z for UTC")
    if time > now:
        raise _illegal(time.isoformat(), "it is in the future, so the run could not be repeated")
    return Moment(time.astimezone(UTC))


def _illegal(value: object, why: str) -> ConfigError:
    return ConfigError(
        f"{VARIABLE}: {value!s} is not allowed: {why}. Nothing was run. Legal values: {LEGAL}."
    )


def named(given: str, rows: Iterable[Mapping[str, Any]]) -> Moment:
    """Return the moment of a publish.

    Args:
        given: The first digits of the id of the publish or of its run.
    """
    found = {
        row["publish_id"]: row
        for row in rows
        if row["action"] == "publish" and given in _beginnings(row, len(given))
    }
    if not found:
        raise ConfigError(
            f"{VARIABLE}: the ledger knows of no publish '{given}'. Nothing was run. Its publishes "
            "are in wap_ledger.publishes, and the tags of a table in its metadata table `refs`."
        )
    if len(found) > 1:
        listed = ", ".join(f"{one} at {row['published_at']}" for one, row in sorted(found.items()))
        raise ConfigError(
            f"{VARIABLE}: {len(found)} publishes have an id that begins with '{given}': {listed}. "
            "Nothing was run. Give more digits."
        )
    ((publish_id, row),) = found.items()
    return Moment(row["published_at"].astimezone(UTC), publish_id)


def _beginnings(row: Mapping[str, Any], length: int) -> set[str]:
    return {str(row[key])[:length] for key in ("publish_id", "run_id")}


def literal(at: datetime) -> str:
    """Return a time as a Spark SQL literal that does not depend on the session's time zone."""
    return f"timestamp '{at.astimezone(UTC).strftime('%Y-%m-%d %H:%M:%S.%f')}Z'"


def refuse(variables: Mapping[str, Any], command: str) -> None:
    """Refuse a replay by a command that publishes."""
    if variables.get(VARIABLE):
        raise ConfigError(
            f"`{command}` publishes, so it does not support {VARIABLE}: it would publish an "
            f"earlier state. Nothing was read or built. For a replay: "
            f"dbt build --vars '{VARIABLE}: ...'"
        )
