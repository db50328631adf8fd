"""What Arrow leaves out of a column is never a value of the subject."""

from __future__ import annotations

import re
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from unittest import mock
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkwap.erasure.cells import candidates, equal, is_text, plain
from sparkwap.erasure.search import NO_TOKEN, NOT_SIMPLE, Search, canonical, text_of, tokens_of

# Letters with more than two cases or forms, what is between words, escapes, and plain letters.
LETTERS = "aAiIkKsSzß\u1e9eſıİK\u212bÅåÿŸµμéÉe\u0301ﬁ日Ж07"
BETWEEN = " \n\t\r\x1c\x1f\xa0\u2003\u3000_.-@:/\\\"'×÷"
words = st.text(LETTERS + BETWEEN, min_size=1, max_size=12)


@st.composite
def texts(draw: st.DrawFn, given_words: list[str]) -> str:
    """A text that may have a word: in another case, spelling, encoding, and with neighbours."""
    word = draw(st.sampled_from(given_words))
    forms = [word, word.upper(), word.lower(), word.swapcase(), word.replace(" ", "\t ")]
    forms += [word.translate({ord("k"): "K", ord("s"): "ſ", ord("i"): "ı"})]
    forms += ["".join(f"\\u{ord(letter):04x}" for letter in word if ord(letter) < 0x10000)]
    around = st.text(LETTERS[:8] + BETWEEN, max_size=3)
    return draw(around) + draw(st.sampled_from(forms)) + draw(around)


@given(st.data())
def test_a_text_with_a_word_has_its_token_or_is_not_simple(data: st.DataObject) -> None:
    some = data.draw(st.lists(words, min_size=1, max_size=3))
    search = Search(
        frozenset(map(canonical, some[:1])) - {""}, {}, frozenset(map(canonical, some)) - {""}
    )
    text = data.draw(texts(some))
    for found, tokens in (
        (search.in_text(text), search.tokens),
        (search.in_raw(text), search.raw_tokens),
    ):
        if found and tokens is not None and not re.search(NOT_SIMPLE, text):
            assert tokens & set(re.split(f"{NO_TOKEN}+", text.lower()))


def test_simple_letters_have_one_form() -> None:
    for letter in map(chr, (*range(0x80), *range(0xC0, 0x100))):
        assert canonical(f"x{letter}x") == (f"x{letter}x" if letter.strip() else "x x")
        assert re.search(NOT_SIMPLE, letter) is None or letter == "\\" or letter < " "


@example(["\u0130stanbul"], ["istanbul"], pa.string())
@given(
    st.lists(words, max_size=3),
    st.lists(words, max_size=6),
    st.sampled_from([pa.string(), pa.large_string(), pa.binary()]),
)
def test_columns_of_text(given_words: list[str], values: list[str], kind: pa.DataType) -> None:
    wanted = frozenset(map(canonical, given_words))
    search = Search(frozenset(), {}, wanted - {""})
    values += [word.swapcase() for word in given_words]
    column = pa.array([None, *values]).cast(kind)
    _assert_complete(column, wanted, search)
    for same in (
        column.dictionary_encode(),
        pc.run_end_encode(column),
        column.cast(pa.binary_view() if kind == pa.binary() else pa.string_view()),
    ):
        _assert_complete(same, wanted, search)


NUMBERS = [0, 1, -1, 42, 127, 2**31 - 1, -(2**63), 1234567]
DAYS = [date(1990, 5, 17), date(1, 1, 1), date(9999, 12, 31)]
MOMENTS = [datetime(2020, 1, 2, 3), datetime(1969, 12, 31, 23, 59, 59, 999_999)]
COLUMNS = [
    pa.array([42, -1, None, 127], pa.int8()),
    pa.array([42, 1234567, None], pa.int32()),
    pa.array([*NUMBERS, None], pa.int64()),
    pa.array([42, 2**64 - 1], pa.uint64()),
    pa.array([Decimal("42.00"), Decimal("-1.50"), None], pa.decimal128(9, 2)),
    pa.array([Decimal("42"), Decimal("10") ** 37], pa.decimal128(38, 0)),
    pa.array([42.0, 1.5, -0.0, 0.0, float("nan"), float("inf"), 1e300, 0.1, None]),
    pa.array([42.0, 0.1], pa.float32()),
    pa.array([*DAYS, None]),
    pa.array([*MOMENTS, None], pa.timestamp("us")),
    pa.array([moment.replace(tzinfo=UTC) for moment in MOMENTS], pa.timestamp("us", "UTC")),
    pa.array(MOMENTS[:1], pa.timestamp("ms")),
    pa.array(MOMENTS[:1], pa.timestamp("us", "Europe/Berlin")),
    pa.array([True, None]),
    pa.array([UUID(int=42), None], pa.uuid()),
    pa.array([time(1, 2, 3)]),
    pa.array([struct.pack("<q", 42) * 2], pa.binary(16)),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
@settings(max_examples=examples(30))
@given(st.data())
def test_columns_of_other_types(column: pa.Array, data: st.DataObject) -> None:
    near = [text_of(value) for one in COLUMNS for value in one.to_pylist() if value is not None]
    spelled = ["042", "+42", "4.2e1", "42.0", "1_000", "٤٢", "2020-01-02T03:00:00", "20200102", ""]
    wanted = data.draw(st.sets(st.sampled_from([*near, *spelled])))
    _assert_complete(column, frozenset(text or "" for text in wanted), Search(frozenset()))


def _assert_complete(column: pa.Array, wanted: frozenset[str], search: Search) -> None:
    def meant(value: Any) -> bool:
        text = is_text(plain(column).type) and search.in_column(value, frozenset())
        return text or text_of(value) in wanted

    values = [value for value in column.to_pylist() if value is not None]
    found = candidates(column, wanted, search.tokens)
    # As text, because no NaN equals another.
    assert {str(v) for v in values if meant(v)} <= set(map(str, found)) <= set(map(str, values))
    same = [text_of(value) in wanted for value in column.to_pylist()]
    assert equal(column, wanted).to_pylist() == same


def test_most_values_are_left_out() -> None:
    search = Search.of(["42"], {}, ["anna.berg@mail.example"])
    texts = pa.array([f"customer {n} at mail" for n in range(100)] + ["Anna.Berg@Mail.Example x"])
    assert candidates(texts, (), search.tokens) == ["Anna.Berg@Mail.Example x"]
    assert candidates(pa.array(range(100)), search.keys, search.tokens) == [42]


@pytest.mark.parametrize("count", [1, 10, 1000])
def test_many_words_are_searched_for_together(count: int) -> None:
    search = Search.of([f"person-{n:04}@mail.example" for n in range(count)], {}, [])
    texts = pa.array(["nobody at mail.example", None, f"x PERSON-{count - 1:04}@mail.example"])
    assert candidates(texts[1:], (), search.tokens) == [texts[2].as_py()]
    assert len(search.tokens or ()) == count


@example(["1990"], ["1990", "x-1990", "19900"])
@given(st.lists(words, min_size=1), st.lists(words))
def test_few_and_many_words_are_found_alike(given_words: list[str], values: list[str]) -> None:
    tokens = tokens_of(frozenset(map(canonical, given_words)))
    column = pa.array([*values, None, *map(str.swapcase, given_words)])[1:]
    found = [set(candidates(column, (), tokens))]
    with mock.patch("sparkwap.erasure.cells._LONGEST_PATTERN", 0):
        found.append(set(candidates(column, (), tokens)))
    assert found[0] == found[1]


def test_a_long_word_is_found() -> None:
    word = "ks" * 150_000
    texts = pa.array(["x", f"({word})"])
    assert candidates(texts, (), Search.of([word], {}, []).tokens) == [f"({word})"]


def test_a_date_that_python_does_not_know_is_not_wanted() -> None:
    column = pa.array([2**31 - 1, 0], pa.int32()).view(pa.date32())
    assert candidates(column, {"1970-01-01"}) == [date(1970, 1, 1)]


def test_text_that_is_no_text_is_an_error() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(struct.pack("<ii", 0, 2)), pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(pa.ArrowInvalid):
        candidates(broken, frozenset({"x"}), frozenset())
    assert candidates(broken.view(pa.binary()), (), frozenset()) == [b"\xff\xfe"]
