"""The search for keys and values in texts, columns and bounds."""

from __future__ import annotations

import base64
import struct
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from sparkwap.erasure.cells import candidates
from sparkwap.erasure.search import Search, bound_text, text_of, unescaped

ANNA = Search.of(["42"], {"email": ["anna@mail.example"]}, ["anna@mail.example"])


def test_short_values_are_searched_for_only_in_their_columns() -> None:
    assert ANNA.words == {"anna@mail.example"}
    assert not ANNA.in_text("42 rows")
    assert ANNA.in_column(42, frozenset({"42"}))


def test_long_values_are_searched_for_everywhere_as_whole_words() -> None:
    assert ANNA.in_text('{"to": "Anna@Mail.example"}')
    assert not ANNA.in_text("joanna@mail.example")
    assert not ANNA.in_text("anna@mail.examples")


@pytest.mark.parametrize(
    ("former", "new", "text"),
    [
        ("Meier-Schulz", ["Meier"], "call Meier-Schulz back"),
        ("Anna Meier", ["Anna", "Anna Berg"], "note: Anna Meier called"),
        ("Alexanderplatz 1, Berlin", ["Berlin", "Hauptstr. 5"], "to Alexanderplatz 1, Berlin"),
        ("anna@x.example.com", ["anna@x.example"], "mail anna@x.example.com"),
        ("Berg Lane 5", ["Anna Berg"], "Anna Berg Lane 5"),
        ("Meier", ["Meier-Schulz"], "Meier-Schulz, formerly Meier"),
    ],
)
def test_a_new_value_hides_no_longer_former_one(former: str, new: list[str], text: str) -> None:
    search = replace(Search.of((), {"c": [former]}, [former]), new=frozenset(new))
    message = b"\x00\x07" + bytes([len(former.encode())]) + former.encode()
    for one in (text, text.upper(), "base64:" + base64.b64encode(message).decode()):
        assert search.in_text(one)
    assert not any(search.in_text(f"<{one}>") for one in new)
    assert len(former) < 16 or search.in_bound(former[:15] + "~", frozenset())


def test_a_bound_may_be_the_start_of_a_new_value() -> None:
    search = replace(
        Search.of((), {"c": ["Meier", "anna@x.example"]}, ["Meier", "anna@x.example"]),
        new=frozenset(["Anna Meier-Schulz", "anna@x.example.com"]),
    )
    for start in ("Anna Meier-Schul", "Anna Meier-Schum", "anna@x.example.c", "an anna@x.exampm"):
        assert not search.in_bound(start, frozenset())
    for start in ("Berta Meier-Schu", "<Meier>, Anna Me", "<anna@x.example>, "):
        assert search.in_bound(start, frozenset())


def test_raw_text_with_the_key_as_a_word_belongs_to_the_subject() -> None:
    assert ANNA.in_raw('{"id": 42, "name": null')
    assert ANNA.in_raw("42;x")
    assert not ANNA.in_raw("142;x")
    assert not ANNA.in_raw("3.42;x")


@pytest.mark.parametrize(
    "text",
    [
        '{"to": "ANNA\\u0040mail.example"}',
        '{"to": "a\\nanna@mail.example"}',
        '{"to": "mailto:\\/\\/anna@mail.example"}',
    ],
)
def test_values_in_json_escapes_are_found(text: str) -> None:
    assert ANNA.in_text(text)


def test_json_escapes_are_decoded() -> None:
    assert unescaped(r"J\u00f6rg \ud83d\ude00 \"x\" a\\b \ud83d") == 'Jörg 😀 "x" a\\b \ufffd'
    assert Search.of(["42"], {}, []).in_raw(r"{\u0022id\u0022: 42}")


def test_values_in_paths_and_summaries_are_found_by_their_columns() -> None:
    wanted = {"customer_id": frozenset({"42"})}
    assert ANNA.in_pairs("s/t/data/customer_id=42/part-0.parquet", wanted)
    assert not ANNA.in_pairs("s/t/data/customer_id=420/part-0.parquet", wanted)
    assert not ANNA.in_pairs("s/t/data/day=42/part-0.parquet", wanted)


def test_a_bound_is_a_prefix_of_a_value() -> None:
    wanted = frozenset({"anna@mail.example"})
    assert ANNA.in_bound("anna@mail.exampl", wanted)
    assert ANNA.in_bound("anna@mail.exampm", wanted)
    assert not ANNA.in_bound("anna", wanted)


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("long", struct.pack("<q", -42), "-42"),
        ("int", struct.pack("<i", 42), "42"),
        ("date", struct.pack("<i", 7_000), "1989-03-02"),
        ("timestamptz", struct.pack("<q", 86_400_000_000), "1970-01-02 00:00:00"),
        ("decimal(9,2)", (-1234).to_bytes(2, "big", signed=True), "-12.34"),
        ("string", "Ærø".encode(), "Ærø"),
        ("double", struct.pack("<d", 1.5), "1.5"),
    ],
)
def test_bounds_are_decoded_by_their_types(kind: str, data: bytes, text: str) -> None:
    assert bound_text(kind, data) == text


def test_the_text_of_a_value() -> None:
    assert text_of(date(1990, 5, 17)) == "1990-05-17"
    assert text_of(datetime(2020, 1, 2, 3)) == "2020-01-02 03:00:00"
    assert text_of(Decimal("1.50")) == "1.5"
    assert text_of(Decimal("42.00")) == text_of(42.0) == text_of(42) == "42"
    assert text_of(1e16) == text_of(10**16)
    assert text_of(["nested"]) is None


@pytest.mark.parametrize("size", [*range(8, 70), 200])
def test_a_length_before_a_text_is_no_letter_of_it(size: int) -> None:
    text = ("a" * size + "@x.exam")[-size:]
    search = Search.of([], {}, [text])
    double = size * 2
    avro = bytes([double] if double < 128 else [double & 127 | 128, double >> 7]) + text.encode()
    variant = bytes([size << 2 | 1]) if size < 64 else bytes([0x40]) + size.to_bytes(4, "little")
    length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    cbor = [b"\xa1\x61e" + bytes([0x60 + size]) + text.encode()] if size < 24 else []
    for data in (avro, variant + text.encode(), b"\x0a" + length + text.encode(), *cbor):
        message = b"\x00\x00\x00\x00\x07" + data + b"after"
        assert search.in_text("base64:" + base64.b64encode(message).decode())
        assert search.in_column(message, frozenset())
        assert message in candidates(pa.array([message, b"x"]), (), search.tokens)
    assert not search.in_text(f"a letter {text}after")
