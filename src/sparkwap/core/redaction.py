"""Removes secrets from messages, logs and the ledger.

Two rules: known secret values (`remember`), and the usual forms of secrets (the password of a URI,
``password=...``, an ``Authorization`` header, a webhook), for unknown secrets in the messages of
other programs.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"

_SHORTEST = 5
"""Shorter values would also be removed from unrelated texts."""

_NAMED = (
    r"(?:password|passwd|pwd|secret|(?<![a-z])sas(?![a-z])"
    r"|(?:access|account|api|encryption|master|private|session|shared|signing|storage)[-_.]?key"
    r"(?![-_.]?id))"
)
_WORDS = rf"(?:{_NAMED}|token|credential|signature|(?<![a-z])sig(?![a-z]))"
_SECRET_KEY = re.compile(rf"{_WORDS}|authorization|webhook", re.IGNORECASE)
_VALUE = r"(?P<secret>[^\s'\",;&)}\]]+)"
# A password may have an "@" that is not encoded: it ends at the last one.
_IN_URI = re.compile(r"(?P<head>\w://[^\s/:@'\"]*:)(?P<secret>[^\s'\"]+)(?=@)")
# No pattern begins with a repetition: it would take quadratic time on a long word.
_ASSIGNED = re.compile(
    # password=x, password = 'x', "password": "x", ;token=x
    rf"(?P<head>{_WORDS}[\w.\-]*(?:\s?=\s?|['\"]\s?[:=]\s?)['\"]?){_VALUE}",
    re.IGNORECASE,
)
_SHAPES = (
    _IN_URI,
    _ASSIGNED,
    # password: x, auth_token: x; but not the text after "at or near token:".
    re.compile(rf"(?P<head>(?:{_NAMED}|\w[-_.]token)[\w.\-]*:\s?['\"]?){_VALUE}", re.IGNORECASE),
    # Authorization: Bearer x, "header.authorization" = 'Basic x'
    re.compile(
        r"(?P<head>\bauthorization['\"]?\s?[:=]\s?['\"]?"
        rf"(?:(?:basic|bearer|digest|negotiate|token)\s+)?){_VALUE}",
        re.IGNORECASE,
    ),
    re.compile(r"(?P<head>\bbearer\s+)(?P<secret>[\w\-.~+/=]{8,})", re.IGNORECASE),
    # Everybody with the address of a webhook can post: https://hooks.slack.com/services/T0/B0/x
    re.compile(
        r"(?P<head>\bhttps?://(?=[^\s'\"<>]*hook)[^\s/'\"<>]+/)(?P<secret>[^\s'\"<>]*[\w/=])",
        re.IGNORECASE,
    ),
)
_ENCODED = re.compile(r"%[0-9A-F]{2}")

_known: set[str] = set()
_lock = threading.Lock()


def is_secret(key: str) -> bool:
    """Return whether a setting with this name is a secret."""
    return _SECRET_KEY.search(key) is not None


def remember(*values: object) -> None:
    """Register secret values for `redact`: a value, a URI's password, or a mapping's secrets.

    The encoded forms of a value are registered too: URL encoding, and the escapes of JSON and
    Python.
    """
    plain = {text for value in values for text in _secrets_in(value)}
    found = {form for text in plain for form in _forms(text)}
    with _lock:
        _known.update(text for text in found if len(text) >= _SHORTEST)


def redact(text: str) -> str:
    """Return the text with `HIDDEN` in place of secrets."""
    with _lock:
        known = sorted(_known, key=len, reverse=True)
    for secret in known:
        text = text.replace(secret, HIDDEN)
    for pattern in _SHAPES:
        text = pattern.sub(rf"\g<head>{HIDDEN}", text)
    return text


def _secrets_in(value: object) -> set[str]:
    if isinstance(value, Mapping):
        settings = {str(key): str(item) for key, item in value.items() if item is not None}
        secret = {text for key, text in settings.items() if is_secret(key)}
        return secret.union(*(_passwords(text) for text in settings.values()))
    if value is None:
        return set()
    return _passwords(str(value)) or {str(value)}


def _passwords(text: str) -> set[str]:
    found = {match["secret"] for match in _IN_URI.finditer(text)}
    # A library takes what is behind its first "@" as the host, and names it in its error.
    found |= {part for secret in found for part in secret.split("@")[1:]}
    if "://" in text:
        found |= {match["secret"] for match in _ASSIGNED.finditer(text)}
    return found | {unquote(secret) for secret in found}


def _forms(secret: str) -> set[str]:
    """Return a secret and its encoded forms."""
    # The given secret may be encoded already, as in a URI.
    plain = {secret, unquote(secret)}
    encoded = {form for p in plain for form in (quote(p), quote(p, safe=""), quote_plus(p))}
    lower = {_ENCODED.sub(lambda match: match[0].lower(), form) for form in encoded}
    escaped = {form for p in plain for form in (json.dumps(p)[1:-1], repr(p)[1:-1])}
    return plain | encoded | lower | escaped
