"""Renders a comparison: text, Markdown for a pull request, HTML for a browser. Pure.

Names and values come from tables that others fill, so they are escaped: no markup, no mention of a
user, no link, no invisible characters.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

from sparkwap.diff.model import RowSample, RunDiff, TableDiff, Values

LIMIT = 60_000
"""Greatest number of characters of a comment; GitHub's limit is 65,536."""

_ENDS = 600  # characters that are reserved for the texts about omitted parts
_VALUE = 80
_SHARE = 0.4  # share of the limit for the overview of tables

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:.5rem 0}td,th{border:1px solid #ccc;padding:.2rem .6rem;
text-align:left;vertical-align:top}td.n{text-align:right}code{white-space:pre-wrap}
.added{background:#e6ffec}.removed{background:#ffebe9}.failed{color:#b00020}i{color:#777}
"""


def text(diff: RunDiff) -> list[str]:
    """Return the lines for a terminal."""
    lines = [f"{diff.branch} compared with {diff.against}:"]
    for table in (*diff.differing, *diff.noted):
        lines.append(f"  {table.name}   {_words(table)}")
        lines += [f"      {line}" for line in _schema_lines(table)]
        lines += [f"      {name}: differs in {n:,}" for name, n in _most(table)]
        lines += [f"      {note}" for note in table.notes]
        lines += [f"      {_sample_line(sample, table.key)}" for sample in table.samples]
    if diff.unchanged:
        names = ", ".join(table.name for table in diff.unchanged)
        lines.append(f"  unchanged: {names}")
    if not diff.tables:
        lines.append("  the branch has no tables")
    return [visible(line) for line in lines]


# ---------------------------------------------------------------- Markdown


def markdown(diff: RunDiff, limit: int = LIMIT) -> str:
    """Return a comment for a pull request with at most ``limit`` characters.

    The tables with most changes come first. A comment that would be too long leaves out samples
    first, then the details of tables, then tables, and says how many.
    """
    head = f"### Data diff: {_code(diff.branch)} against {_code(diff.against)}"
    room = max(limit, 2 * _ENDS) - _ENDS
    out = _Room(f"{head}\n\n{_totals(diff)}\n\n", room)
    if diff.differing:
        _overview(diff.differing, out, int(room * _SHARE))
    left = 0
    for table in (*diff.differing, *diff.noted):
        if not _has_details(table):
            continue
        if left or not any(out.add(form) for form in _details(table)):
            left += 1
    if left:
        out.end(f"\nThe details of {left} more table{_s(left)} are left out: no space.\n")
    if diff.unchanged:
        names = [_code(table.name) for table in diff.unchanged]
        line = f"\nUnchanged: {', '.join(names)}\n"
        if not out.add(line):
            out.end(f"\nUnchanged: {len(names)} table{_s(len(names))}\n")
    return out.text


class _Room:
    """A text with a size limit."""

    def __init__(self, start: str, size: int) -> None:
        self.text = start
        self._size = size

    def add(self, more: str) -> bool:
        """Add a text if it fits; returns whether it does."""
        if len(self.text) + len(more) > self._size:
            return False
        self.text += more
        return True

    def end(self, more: str) -> None:
        """Add a short text, for which space is reserved."""
        self.text += more


def _overview(tables: Sequence[TableDiff], out: _Room, room: int) -> None:
    out.add("| table | rows added | removed | changed | columns |\n|---|--:|--:|--:|---|\n")
    begin = len(out.text)
    for at, table in enumerate(tables):
        row = (
            f"| {_code(table.name)}{_tag(table)} | {_number(table.added)} "
            f"| {_number(table.removed)} | {_number(table.changed) if table.key else '–'} "
            f"| {_columns_word(table)} |\n"
        )
        if len(out.text) - begin + len(row) > room or not out.add(row):
            rest = len(tables) - at
            out.end(f"\nand {rest} more table{_s(rest)} with fewer changes\n")
            return


def _details(table: TableDiff) -> Iterator[str]:
    """Yield the details of a table in ever shorter forms."""
    counts = {len(table.samples), len(table.samples) // 2, min(len(table.samples), 3), 0}
    for count in sorted(counts, reverse=True):
        yield _detail(table, _spread(table.samples, count))
    yield _detail(table, (), columns=10)


def _spread(samples: Sequence[RowSample], count: int) -> Sequence[RowSample]:
    """Return a number of samples, with some of each kind."""
    kinds: dict[str, list[RowSample]] = {}
    for sample in samples:
        kinds.setdefault(sample.change, []).append(sample)
    ordered: list[RowSample] = []
    while len(ordered) < count:
        ordered += [kind.pop(0) for kind in kinds.values() if kind]
    chosen = [id(sample) for sample in ordered[:count]]
    return [sample for sample in samples if id(sample) in chosen]


def _detail(table: TableDiff, samples: Sequence[RowSample], columns: int = 100) -> str:
    lines = [f"<details><summary>{_code(table.name)}: {_words(table)}</summary>", ""]
    lines += [f"- {fact}" for fact in _facts(table, bool(samples), columns)]
    if samples:
        lines += ["", *_markdown_samples(samples, table.key)]
    if len(samples) < len(table.samples):
        rest = len(table.samples) - len(samples)
        lines += ["", f"{rest} sample row{_s(rest)} left out: no space."]
    return "\n".join([*lines, "", "</details>", "", ""])


def _markdown_samples(samples: Sequence[RowSample], key: Sequence[str]) -> Iterator[str]:
    names = _names(samples, key)
    yield "| | " + " | ".join(map(_code, names)) + " |"
    yield "|---|" + "---|" * len(names)
    for sample in samples:
        cells = [_cell(sample, name, key, _code) for name in names]
        yield f"| {_kind(sample)} | " + " | ".join(cells) + " |"


# ---------------------------------------------------------------- HTML


def page(diff: RunDiff) -> str:
    """Return a page without scripts, style sheets and links."""
    body = [
        f"<h1>Data diff: {_code(diff.branch)} against {_code(diff.against)}</h1>",
        f"<p>{html.escape(_totals(diff))} {diff.at:%Y-%m-%d %H:%M} UTC.</p>",
    ]
    if diff.differing:
        body.append(
            "<table><tr><th>table<th>rows added<th>removed<th>changed<th>columns</tr>"
            + "".join(_html_row(table) for table in diff.differing)
            + "</table>"
        )
    detailed = (*diff.differing, *diff.noted)
    body += [_html_detail(table) for table in detailed if _has_details(table)]
    if diff.unchanged:
        names = ", ".join(_code(table.name) for table in diff.unchanged)
        body.append(f"<p>Unchanged: {names}</p>")
    title = html.escape(visible(f"Data diff: {diff.branch}"))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{_STYLE}</style></head><body>"
        + "\n".join(body)
        + "</body></html>\n"
    )


def _html_row(table: TableDiff) -> str:
    numbers = (table.added, table.removed, table.changed if table.key else None)
    cells = "".join(f'<td class="n">{"–" if n is None else f"{n:,}"}' for n in numbers)
    mark = ' class="failed"' if table.change == "failed" else ""
    return f"<tr{mark}><td>{_code(table.name)}{_tag(table)}{cells}<td>{_columns_word(table)}</tr>"


def _html_detail(table: TableDiff) -> str:
    listed = "".join(f"<li>{fact}</li>" for fact in _facts(table, bool(table.samples)))
    return (
        f"<details><summary>{_code(table.name)}: {_words(table)}</summary><ul>{listed}</ul>"
        f"{_html_samples(table)}</details>"
    )


def _html_samples(table: TableDiff) -> str:
    if not table.samples:
        return ""
    names = _names(table.samples, table.key)
    head = "".join(f"<th>{_code(name)}" for name in names)
    rows = "".join(
        f'<tr class="{sample.change}"><td>{_kind(sample)}'
        + "".join(f"<td>{_cell(sample, name, table.key, _code)}" for name in names)
        + "</tr>"
        for sample in table.samples
    )
    return f"<table><tr><th>{head}</tr>{rows}</table>"


# ---------------------------------------------------------------- words


def _totals(diff: RunDiff) -> str:
    if not diff.tables:
        return "The branch has no tables."
    noted = len(diff.noted)
    notes = f" See the notes of {noted} table{_s(noted)} without a difference." if noted else ""
    if not diff.differing:
        return f"No difference in {len(diff.tables)} table{_s(len(diff.tables))}.{notes}"
    rows = {
        kind: sum(getattr(table, kind) for table in diff.tables)
        for kind in ("added", "removed", "changed")
    }
    counts = ", ".join(f"{n:,} {kind}" for kind, n in rows.items())
    failed = f" {len(diff.failed)} could not be compared." if diff.failed else ""
    tables = len(diff.tables)
    differ = f"{len(diff.differing)} of {tables} table{_s(tables)} differ"
    return f"{differ}. Rows: {counts}.{failed}{notes}"


def _words(table: TableDiff) -> str:
    """Return the change of a table in a line."""
    if table.change == "failed":
        return "not compared"
    if table.change == "unchanged":
        return "no difference in what was compared"
    if table.change in ("new", "dropped"):
        rows = table.added if table.change == "new" else table.removed
        return f"{table.change} {table.kind}, {rows:,} row{_s(rows)}"
    counts = {"added": table.added, "removed": table.removed, "changed": table.changed}
    parts = [f"{n:,} {kind}" for kind, n in counts.items() if n]
    words = f"rows: {', '.join(parts)}" if parts else "the same rows"
    before, after = table.rows_before, table.rows_after
    if before is not None and after is not None and before != after:
        words += f" ({before:,} before, {after:,} now)"
    return f"columns differ; {words}" if table.schema else words


def _facts(table: TableDiff, sampled: bool, columns: int | None = None) -> list[str]:
    """Return what differs in a table, of at most so many columns, and the remarks."""
    most = _most(table)
    facts = _schema_lines(table, _code)[:columns]
    facts += [f"{_code(name)} differs in {n:,} row{_s(n)}" for name, n in most[:columns]]
    if columns is not None and len(most) > columns:
        facts.append(f"and {len(most) - columns} more columns differ")
    facts += map(_escaped, table.notes)
    if table.hidden and sampled:
        facts.append(f"not shown: {', '.join(map(_code, table.hidden))}")
    return facts


def _schema_lines(table: TableDiff, show: Callable[[str], str] = str) -> list[str]:
    lines = []
    for new in table.schema.added:
        counts = ""
        if new.values is not None and new.nulls is not None:
            counts = f": {new.values:,} values, {new.nulls:,} NULL"
        lines.append(f"column {show(new.name)} added, {show(new.type)}{counts}")
    for gone in table.schema.removed:
        lines.append(f"column {show(gone.name)} removed, {show(gone.type)}")
    for other in table.schema.retyped:
        rest = "" if other.compared else ", values not compared"
        lines.append(
            f"column {show(other.name)} was {show(other.before)}, is {show(other.after)}{rest}"
        )
    for renamed in table.schema.renamed:
        lines.append(f"column {show(renamed.before)} renamed to {show(renamed.after)}")
    return lines


def _columns_word(table: TableDiff) -> str:
    schema = table.schema
    parts = [
        f"{sign}{len(found)}"
        for sign, found in (("+", schema.added), ("−", schema.removed))
        if found
    ]
    other = len(schema.retyped) + len(schema.renamed)
    parts += [f"~{other}"] if other else []
    return " ".join(parts)


def _tag(table: TableDiff) -> str:
    words = {"new": f" new {table.kind}", "dropped": " dropped", "failed": " not compared"}
    return words.get(table.change, "")


def _has_details(table: TableDiff) -> bool:
    return bool(table.schema or table.columns or table.notes or table.samples)


def _most(table: TableDiff) -> list[tuple[str, int]]:
    return sorted(table.columns.items(), key=lambda item: (-item[1], item[0]))


def _names(samples: Iterable[RowSample], key: Sequence[str] = ()) -> list[str]:
    found: dict[str, None] = {}
    for sample in samples:
        for values in (sample.before, sample.after):
            found.update(dict.fromkeys(values or {}))
    first = [name for name in key if name in found]
    return [*first, *(name for name in found if name not in first)]


def _kind(sample: RowSample) -> str:
    return sample.change if sample.count == 1 else f"{sample.change} ×{sample.count:,}"


def _cell(
    sample: RowSample,
    name: str,
    key: Sequence[str],
    show: Callable[[str], str],
    null: str = "<i>NULL</i>",
    arrow: str = "→",
) -> str:
    def shown(values: Values | None) -> str:
        if values is None or name not in values:
            return ""
        value = values[name]
        return null if value is None else show(_cut(value))

    old, new = shown(sample.before), shown(sample.after)
    if sample.before is None or sample.after is None:
        return new if sample.before is None else old
    # A changed row has its key, and the columns that differ.
    if name in key or name not in sample.before:
        return new
    return f"{old} {arrow} {new}{' (differs in what is not shown)' if old == new else ''}"


def _sample_line(sample: RowSample, key: Sequence[str]) -> str:
    cells = (f"{name}={_cell(sample, name, key, str, 'NULL', '->')}" for name in _names([sample]))
    return f"{_kind(sample)}: {', '.join(cells)}"


def _cut(value: str) -> str:
    return value if len(value) <= _VALUE else value[: _VALUE - 1] + "…"


def _number(count: int) -> str:
    return f"{count:,}" if count else ""


def _s(count: int) -> str:
    return "" if count == 1 else "s"


# ---------------------------------------------------------------- escapes


def visible(value: str) -> str:
    """Return a text whose invisible and direction-changing characters are written as codes."""
    return "".join(
        f"\\u{{{ord(c):x}}}" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c
        for c in value
    )


def _escaped(value: str) -> str:
    """Return a text without a meaning in Markdown or HTML.

    All characters except letters, digits and a few harmless marks become entities, which Markdown
    never reads as markup.
    """
    return "".join(c if c.isalnum() or c in " ,;=%?" else f"&#{ord(c)};" for c in visible(value))


def _code(value: str) -> str:
    """Return a text as code, in which GitHub makes no mentions and references."""
    return f"<code>{_escaped(value)}</code>"
