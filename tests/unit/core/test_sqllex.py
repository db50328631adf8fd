"""The tokens are those of Spark's lexer: each case was compared with the lexer of Spark 4.1."""

import pytest

from sparkwap.core.sqllex import ANY_RELATION, FILES, dotted_names, relation_names, tokens


@pytest.mark.parametrize(
    ("sql", "texts"),
    [
        ("select a.b, 1.5", ["select", "a", ".", "b", ",", "1", ".", "5"]),
        ("", []),
        # A raw string has no escapes: it ends at its first quote.
        (r"f(p, r'\', '/') from s", ["f", "(", "p", ",", r"r'\'", ",", "'/'", ")", "from", "s"]),
        (r'R"\" x', [r'R"\"', "x"]),
        (r"xr'\' y'", ["xr", r"'\' y'"]),
        # Other strings continue after a doubled or escaped quote.
        (r"'it\'s' x", [r"'it\'s'", "x"]),
        ("'it''s' x", ["'it''s'", "x"]),
        ('"a""b" x', ['"a""b"', "x"]),
        (r"'\\' x", [r"'\\'", "x"]),
        ("`a``b`.`c d` x", ["`a``b`", ".", "`c d`", "x"]),
        (r"`\` x", [r"`\`", "x"]),
        # Comments in brackets nest; a hint is none.
        ("a /* b /* c */ d */ e", ["a", "e"]),
        ("a /* ' */ b", ["a", "b"]),
        ("a /*+ b */ c", ["a", "/*+", "b", "*/", "c"]),
        ("a /* b /*+ c */ d", ["a", "d"]),
        ("a -- b /* '\nc", ["a", "c"]),
        ("a -- b \\\n still\nc", ["a", "c"]),
        ("a -- b\rc", ["a", "c"]),
        ("-- to the end", []),
        # For Spark, an address is one word, in which no comment begins.
        ("http://x/--y z", ["http://x/--y", "z"]),
        ("http://x/*y", ["http://x/", "*", "y"]),
        # Some blanks of Unicode are blanks, some are not.
        ("a\u00a0b\u3000c\u2003d", ["a", "b", "c", "d"]),
        ("a\u200bb", ["a", "\u200b", "b"]),
        ("grün.été", ["grün", ".", "été"]),
    ],
)
def test_tokens(sql: str, texts: list[str]) -> None:
    found = list(tokens(sql))
    assert [token.text for token in found] == texts
    assert all(sql[token.start : token.end] == token.text for token in found)


@pytest.mark.parametrize("rest", ["'b", '"b', "`b", "/* b", "/* /* b */", r"'b\'", "'b''", "'b /*"])
def test_an_unclosed_token_ends_with_the_text(rest: str) -> None:
    assert [(t.kind, t.text) for t in tokens(f"a {rest}")] == [("word", "a"), ("unclosed", rest)]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("a", "word", "a"),
        ("`a``b`", "quoted", "a`b"),
        ("'a''b'", "string", "a'b"),
        ('"a""b\'c"', "string", "a\"b'c"),
        (r"r'a\nb'", "string", r"a\nb"),
        (r"'a\nb\\c\'d'", "string", "a\nb\\c'd"),
        (r"'\''''", "string", "''"),
        (r"'\u0061\U0001F600\142'", "string", "a😀b"),
        (r"'a\%b\_c\d'", "string", r"a\%b\_cd"),
        (r"'\0\Z'", "string", "\0\x1a"),
    ],
)
def test_values(text: str, kind: str, value: str) -> None:
    (token,) = tokens(text)
    assert (token.kind, token.value) == (kind, value)


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("select a from b.c", ["select", "a", "from", "b.c"]),
        ("x.* from `b` . /* . */ `c.d` -- e\n . f g", ["x", "from", "b.c.d.f", "g"]),
        ("from a..b", ["from", "a", "b"]),
        ("f(a.b)", ["f", "a.b"]),
        ("'a.b'", []),
    ],
)
def test_dotted_names(sql: str, found: list[str]) -> None:
    assert [".".join(part.value for part in name) for name in dotted_names(sql)] == found


def test_tokens_are_lazy() -> None:
    endless = tokens("insert into t values " + "(1)," * 1_000_000)
    assert [next(endless).text for _ in range(3)] == ["insert", "into", "t"]


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("select * from s.t", ("s", "t")),
        ("select * from lake.`S` . /* */ T.branch_x", ("s", "t")),
        ("select * from t", ("default", "t")),
        ("select * from identifier('s.`t`')", ("s", "t")),
        ('select * from "S" . "t" as "x"', ("s", "t")),
        ("select * from parquet.`/lake/S/*`", ("parquet", "/lake/s/*")),
        (
            "create temporary view v using csv options (path 'file:/lake/S/*')",
            (FILES, "file:/lake/s/*"),
        ),
        ("call lake.system.create_changelog_view(table => 'S.t')", ("s", "t")),
        ("select * from identifier('s.' || 't')", ANY_RELATION),
        ("select * from identifier('s.' 't')", ANY_RELATION),
        ("select * from identifier(:x)", ANY_RELATION),
        ("select * from identifier('${x}')", ANY_RELATION),
    ],
)
def test_relation_names(sql: str, name: tuple[str, str]) -> None:
    assert name in relation_names(sql)


def test_comments_and_texts_name_no_relation() -> None:
    assert relation_names("-- s.t\n's.t', 'a/b'") == frozenset()
    assert ("default", "t") not in relation_names('select "t"')
    assert ANY_RELATION not in relation_names("select identifier, `identifier`('a') from s.t")


@pytest.mark.parametrize(
    "where",
    [
        "s.t.files",
        "lake.s.t.branch_main",
        "s.t version as of 'main'",
        "s.t VERSION AS OF 1",
        "s.t for system_version as of 1",
        "s.t /* now */ timestamp as of current_date()",
        "s.t for system_time as of '2024-01-01'",
        "s.t with ('branch' = 'main')",
        "identifier('s.t') version as of 'main'",
        "identifier('s.t.snapshots')",
    ],
)
def test_another_state_of_a_table_is_not_its_present_one(where: str) -> None:
    sql = f"select t.id, s.t.id from {where} as t"
    assert ("s", "t") in relation_names(sql)
    assert ("s", "t") not in relation_names(sql, present=True)
    both = f"{sql} join lake.s.T as version on true"
    assert ("s", "t") in relation_names(both, present=True)


@pytest.mark.parametrize("where", ["s.t", "t", "lake.`s`.`t` as version", "identifier('s.t')"])
def test_the_present_state_of_a_table(where: str) -> None:
    name = ("default" if where == "t" else "s", "t")
    assert name in relation_names(f"select * from {where} where t.id > 1", present=True)
