"""Secrets stay out of messages, logs and the ledger: one function that every text goes through.

Two nets: values that are known to be secret (`remember`), and the shapes that secrets come in (the
password of a URI, ``password=...``, an ``Authorization`` header, a webhook), for texts of others
that name what nobody has told us of.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"

_SHORTEST = 5
"""A shorter value would be cut out of texts that have nothing to do with it."""

_NAMED = (
    r"(?:password|passwd|pwd|secret|(?<![a-z])sas(?![a-z])"
    r"|(?:access|account|api|encryption|master|private|session|shared|signing|storage)[-_.]?key"
    r"(?![-_.]?id))"
)
_WORDS = rf"(?:{_NAMED}|token|credential|signature|(?<![a-z])sig(?![a-z]))"
_SECRET_KEY = re.compile(rf"{_WORDS}|authorization|webhook", re.IGNORECASE)
_VALUE = r"(?P<secret>[^\s'\",;&)}\]]+)"
_IN_URI = re.compile(r"(?P<head>\w://[^\s/:@'\"]*:)(?P<secret>[^\s@'\"]+)(?=@)")
# No pattern begins with a repetition: on a long word that would take the square of its length.
_ASSIGNED = re.compile(
    # password=x, password = 'x', "password": "x", ;token=x
    rf"(?P<head>{_WORDS}[\w.\-]*(?:\s?=\s?|['\"]\s?[:=]\s?)['\"]?){_VALUE}",
    re.IGNORECASE,
)
_SHAPES = (
    _IN_URI,
    _ASSIGNED,
    # password: x, auth_token: x; but not what stands after "at or near token:".
    re.compile(rf"(?P<head>(?:{_NAMED}|\w[-_.]token)[\w.\-]*:\s?['\"]?){_VALUE}", re.IGNORECASE),
    # Authorization: Bearer x, "header.authorization" = 'Basic x'
    re.compile(
        r"(?P<head>\bauthorization['\"]?\s?[:=]\s?['\"]?"
        rf"(?:(?:basic|bearer|digest|negotiate|token)\s+)?){_VALUE}",
        re.IGNORECASE,
    ),
    re.compile(r"(?P<head>\bbearer\s+)(?P<secret>[\w\-.~+/=]{8,})", re.IGNORECASE),
    # The address of a webhook is the right to post: https://hooks.slack.com/services/T0/B0/x
    re.compile(
        r"(?P<head>\bhttps?://(?=[^\s'\"<>]*hook)[^\s/'\"<>]+/)(?P<secret>[^\s'\"<>]*[\w/=])",
        re.IGNORECASE,
    ),
)
_ENCODED = re.compile(r"%[0-9A-F]{2}")

_known: set[str] = set()
_lock = threading.Lock()


def is_secret(key: str) -> bool:
    """Whether a setting of this name holds a secret."""
    return _SECRET_KEY.search(key) is not None


def remember(*values: object) -> None:
    """Keep values out of every text from now on; a mapping stands for those of it that are secret.

    Of a URI it is the password. What is kept out is the value itself and the ways to write it: URL
    encoding, and the escapes of JSON and Python.
    """
    plain = {text for value in values for text in _secrets_in(value)}
    found = {form for text in plain for form in _forms(text)}
    with _lock:
        _known.update(text for text in found if len(text) >= _SHORTEST)


def redact(text: str) -> str:
    """The text with `HIDDEN` in the place of secrets."""
    with _lock:
        known = sorted(_known, key=len, reverse=True)
    for secret in known:
        text = text.replace(secret, HIDDEN)
    for pattern in _SHAPES:
        text = pattern.sub(rf"\g<head>{HIDDEN}", text)
    return text


def _secrets_in(value: object) -> set[str]:
    if isinstance(value, Mapping):
        settings = {str(key): str(one) for key, one in value.items() if one is not None}
        secret = {one for key, one in settings.items() if is_secret(key)}
        return secret.union(*(_passwords(one) for one in settings.values()))
    if value is None:
        return set()
    return _passwords(str(value)) or {str(value)}


def _passwords(text: str) -> set[str]:
    found = {match["secret"] for match in _IN_URI.finditer(text)}
    if "://" in text:
        found |= {match["secret"] for match in _ASSIGNED.finditer(text)}
    return found | {unquote(one) for one in found}


def _forms(secret: str) -> set[str]:
    """The ways in which a text may hold a secret."""
    # What is called a secret may itself be the encoded form, as in a URI.
    plain = {secret, unquote(secret)}
    encoded = {form for one in plain for form in (quote(one), quote(one, safe=""), quote_plus(one))}
    lower = {_ENCODED.sub(lambda match: match[0].lower(), one) for one in encoded}
    escaped = {form for one in plain for form in (json.dumps(one)[1:-1], repr(one)[1:-1])}
    return plain | encoded | lower | escaped
