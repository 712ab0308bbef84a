"""A run as text, as a notebook card and as an HTML report.

All views show the same facts and escape text written by a model or a person. Id, duration and amount paid
differ between runs with the same result, so they appear only in the last line. A report is one self-contained
file that needs no network.
"""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from html import escape
from itertools import count
from math import isnan
from pathlib import Path

from tot_lab.analysis.by_person import changes_of
from tot_lab.analysis.frames import CallRow, judgement_of, tools_of
from tot_lab.analysis.outside import from_outside
from tot_lab.core.calls import Reply, html_text, is_admitted, refused
from tot_lab.core.files import write_whole
from tot_lab.core.records import Note
from tot_lab.core.tools import tool_of
from tot_lab.core.tree import Node, Tree, format_score
from tot_lab.record.doubts import doubts_of
from tot_lab.record.losses import describe, large, losses_of, total, warning_of
from tot_lab.record.run import Run, Usage, model_note, money
from tot_lab.views.figures.theme import MISSED, PATH, PERSON_TEXT, number, printable, short, themed
from tot_lab.views.figures.verdict import format_grade, stop_words, verdict_of
from tot_lab.views.html_page import document, html_file
from tot_lab.views.markdown import text_to_html
from tot_lab.views.tree_svg import svg_url, tree_svg

# Inline styles of the card, since a notebook that is not trusted ignores style sheets.
_CARD = themed(
    "font:var(--text-body)/1.45 var(--font);color:inherit;background:none;"
    "border:1px solid var(--either-border);border-radius:8px;padding:var(--space-5) var(--space-6);"
    "max-width:880px;break-inside:avoid"
)
_QUESTION = themed("font-size:var(--text-lead);margin:var(--space-1) 0 var(--space-3)")
_APART = themed("margin-bottom:var(--space-4)")
_ROW = themed("display:flex;flex-wrap:wrap;gap:var(--space-3) var(--space-7);margin-bottom:var(--space-4)")
_SMALL = themed("font-size:var(--text-small);opacity:.65")
_FOOT = themed("margin-top:var(--space-3)")
_PILL = themed("margin-left:.7em;padding:var(--space-1) var(--space-4);border:1px solid;border-radius:9px")

MAX_DRAWN = 150
"""Maximum number of thoughts in the tree of a notebook card."""

LINE = 300
"""Maximum number of characters of the question and the answer in a notebook card."""

CELL = 60
"""Maximum number of characters of each other fact in a notebook card."""

MAX_ROWS = 12
"""Maximum number of lines of the tree in the text of a run."""


class RunSummary:
    """The facts about a run, finished or not, formatted as text. Every view shows them.

    A fact is "" if the run lacks it. `run_facts` differ between runs with the same result.
    """

    def __init__(self, run: Run) -> None:
        if "_counted" not in run.__dict__:  # the records of a run do not change
            run.__dict__["_counted"] = _count_records(run)
        self.failed, self.doubts, self.tools, self.carried_out, in_tools, cached = run.__dict__["_counted"]
        usage, header = run.usage, run.header
        adaptive = header.strategy.get("kind") == "adaptive" and run.selected_strategy is not None
        self.strategy = printable(f"{run.name}→{run.strategy_used}" if adaptive else run.name)
        self.question, self.answer = printable(run.question), printable(run.answer)
        self.model, self.model_note = printable(run.model), run.model_note
        self.verdict = _format_verdict(run)
        self.score = "" if run.score is None else format_score(run.score)
        self.ended = _unfinished(run) if run.stop_reason is None else stop_words(run)
        self.changed = printable("; ".join(map(str, changes_of(run))))
        self.thoughts = f"{len(run.tree):,}"
        calls = f"at least {usage.calls:,}" if usage.calls else "unknown"
        calls = calls if "calls" in header.unknown else f"{usage.calls:,}"
        self.calls = calls + (f" ({usage.errors:,} failed)" if usage.errors else "")
        tokens = (number(usage.input_tokens), number(usage.output_tokens))
        self.tokens = "unknown" if set(tokens) == {"unknown"} else f"{tokens[0]} in, {tokens[1]} out"
        self.cost = money(usage.cost)
        self.run_facts = _join(
            f"run {run.id}",
            f"repeat {header.repeat}" if header.repeat else "",
            f"{_format_seconds(run.seconds)}{in_tools}",
            "" if usage.cost is usage.paid is None else f"paid {money(usage.paid)}",
            f"{cached:,} calls from the cache" if cached else "",
            "" if run.verified else "unverified: no checksums",
        )

    def facts(self) -> dict[str, str]:
        """Return the facts of the card and of the report's table, by name."""
        facts = {"ended": self.ended, "strategy's score": self.score, "thoughts": self.thoughts}
        return facts | {"calls": self.calls, "tools": self.tools, "tokens": self.tokens, "cost": self.cost}


def _join(*facts: str) -> str:
    return " · ".join(filter(None, facts))


def _unfinished(run: Run) -> str:
    continues = run.loaded and run.path and run.header.strategy.get("kind") != "recorded"
    return f"unfinished{'; await lab.resume(run.path) continues it' if continues else ''}"


def _format_verdict(run: Run) -> str:
    """Return the grade in words, with the expected answer if another one was given."""
    grade, expected = format_grade(run), verdict_of(run).expected
    grade = "✗" if grade == "✗ wrong" and not run.answer else grade
    return f"{grade}, expected {expected}" if grade.startswith("✗") and expected else grade


def _count_records(run: Run) -> tuple[str, str, str, int, str, int]:
    """Return the facts about a run for which all its records are read.

    Returns:
        The most common error of the calls, else why the run failed; what else makes the result doubtful; the
        calls of each tool; the number of tool calls that were carried out; their total time; and the number
        of calls answered from the cache.
    """
    replies = [line.e for line in run.lines if isinstance(line.e, Reply) and is_admitted(line.e)]
    reasons = Counter(reply.error for reply in replies if reply.error)
    tools = [row for row in tools_of(run) if row.reply is not None and not refused(row.reply.error)]
    return (
        printable(reasons.most_common(1)[0][0] if reasons else run.failure or ""),
        _format_doubts(run),
        _format_tools(tools),
        len(tools),
        _format_tool_time(run, tools),
        sum(isinstance(line.e, Note) and line.e.name == "call.cached" for line in run.lines),
    )


def _format_doubts(run: Run) -> str:
    """Return the lost replies and other doubts about a run as text.

    Failed calls are not included, because `RunSummary.failed` shows them.
    """
    losses = losses_of(run)
    replies = {
        role: lost._replace(failed=0, calls=lost.calls - lost.failed) for role, lost in (losses or {}).items()
    }
    lost = [counted for *_, counted in large({"": replies})]
    return printable("; ".join([*lost, *map(str, doubts_of(run, losses))]))


def run_text(run: Run) -> str:
    """Return the repr of a run: its facts and a small tree."""
    summary = RunSummary(run)
    changed = {change.node for change in changes_of(run)}
    notes = {
        "failed    ": short(summary.failed, 400),
        "!         ": short(summary.doubts, 400),
        "tools     ": short(summary.tools, 90),
        "person    changed ": short(summary.changed, 400),
    }
    rows = [
        _join(summary.strategy, summary.model, summary.model_note),
        f"  question  {short(summary.question, 90)}",
        f"  answer    {short(summary.answer, 90) or 'none'}  {summary.verdict}",
        "  ended     "
        + _join(short(summary.ended, 90), f"strategy's score {summary.score}" if summary.score else ""),
        f"  {_format_usage(summary)}",
        *(f"  {name}{text}" for name, text in notes.items() if text),
        f"  thoughts  {summary.thoughts}",
        *(f"    {row}" for row in tree_rows(run.tree, run.solution_path, changed=changed)),
        f"  {summary.run_facts}",
    ]
    return "\n".join(row.rstrip() for row in rows)


def _format_usage(summary: RunSummary) -> str:
    """Format calls, tokens and cost. Unknown amounts are listed together at the end."""
    amounts = {"calls    ": summary.calls, "tokens": summary.tokens, "cost": summary.cost}
    known = [f"{name} {text}" for name, text in amounts.items() if text != "unknown"]
    unknown = ", ".join(name.strip() for name, text in amounts.items() if text == "unknown")
    return " · ".join([*known, *([f"{unknown} unknown"] if unknown else [])])


def tree_rows(tree: Tree, path: Sequence[str], changed: Collection[str] = ()) -> list[str]:
    """Return a tree as at most `MAX_ROWS` lines of text.

    If not all thoughts fit, those on the path to the answer are preferred, then those closest to the root.
    The path is drawn with bold lines. The last line states how many thoughts are not shown. Thoughts that a
    person `changed` are marked. The question is shown only at the root: every attempt of self-consistency
    repeats it.
    """
    if not tree.roots:
        return []
    path = path or [tree.root.id]
    # Number of thoughts left out in the middle of a long path, and the id of the first one.
    skipped, gap = 0, ""
    if len(path) > MAX_ROWS - 4:
        head, tail = MAX_ROWS // 2 - 1, MAX_ROWS // 2 - 3
        skipped, gap = len(path) - head - tail, path[head]
        path = [*path[:head], *path[-tail:]]
    shown = {id: tree[id] for id in path}
    room = MAX_ROWS - 1 - len(shown) - bool(skipped)
    # A heap of the children of shown thoughts, by depth and then by order.
    waiting: list[tuple[int, int, Node, Iterator[Node]]] = []

    def add_next(nodes: Iterator[Node]) -> None:
        if (node := next(nodes, None)) is not None:
            heapq.heappush(waiting, (node.depth, node.order, node, nodes))

    for ids in (tree.roots, *(node.children for node in shown.values())):
        add_next(map(tree.__getitem__, ids))
    while waiting and room > 0:
        *_, node, following = heapq.heappop(waiting)
        add_next(following)
        if node.id not in shown and node.id != gap:
            shown[node.id] = node
            room -= 1
            add_next(map(tree.__getitem__, node.children))
    drawn: dict[str | None, list[Node]] = {}
    for node in sorted([*shown.values(), *([tree[gap]] if gap else [])], key=lambda node: node.order):
        drawn.setdefault(node.parent, []).append(node)
    on_path = {*path, gap}
    rows: list[str] = []
    stack = [(node, "", "", "") for node in reversed(drawn[None])]
    while stack:
        node, lead, branch, after = stack.pop()
        mark = "[person] " if node.id in changed else ""
        rows.append(f"{lead}{branch}{mark}{_tree_row(node, len(lead + branch + mark), tree.root.text)}")
        under = drawn.get(node.id, [])
        for place, child in reversed(list(enumerate(under))):
            last = place == len(under) - 1
            thick = child.id in on_path
            bar = "   " if last else "│  "
            turn = ("┗━ " if last else "┣━ ") if thick else ("└─ " if last else "├─ ")
            if child.id == gap:
                deeper = next(id for id in path if tree[id].depth == child.depth + skipped)
                stack.append((tree[deeper], lead + after, f"{turn}⋮ {skipped:,} steps ⋮ ", bar))
            else:
                stack.append((child, lead + after, turn, bar))
    hidden = len(tree) - len(shown) - skipped
    return rows + ([f"… {hidden:,} more thoughts"] if hidden else [])


def run_html(run: Run) -> str:
    """Return the card of a run in a notebook, for light and dark pages.

    The tree is an image: the sanitiser of an untrusted notebook removes the elements of an SVG, but not
    their texts.
    """
    summary = RunSummary(run)
    line = MISSED if summary.verdict.startswith("✓") else PATH  # visible on light and on dark pages
    grade = html_text(summary.verdict)
    verdict = f'<b style="{_PILL};border-color:{line}">{grade}</b>' if grade else ""
    table = "".join(
        f'<div style="min-width:4em"><div style="{_SMALL}">{name}</div>'
        f"<div>{html_text(short(value, CELL))}</div></div>"
        for name, value in summary.facts().items()
        if value
    )
    notes = "".join(
        f'<div style="{_APART}">{form.format(html_text(short(text, 400)))}</div>'
        for form, text in (
            ("failed: {}", summary.failed),
            ("<b>! {}</b>", summary.doubts),
            (f'<b style="color:{PERSON_TEXT}">✎ a person changed</b> {{}}', summary.changed),
        )
        if text
    )
    return (
        f'<div style="{_CARD}">'
        f'<div style="opacity:.75">{html_text(summary.strategy)} · {html_text(summary.model)}'
        f"{_badge_html(summary.model_note)}</div>"
        f'<div style="{_QUESTION}">{_line_html(summary.question)}</div>'
        f'<div style="{_APART}"><span style="opacity:.65">answer</span> '
        f"<b>{_line_html(summary.answer) or 'none'}</b>{verdict}</div>"
        f'<div style="{_ROW}">{table}</div>'
        f"{notes}{_tree_html(run)}"
        f'<div style="{_SMALL};{_FOOT}">{html_text(summary.run_facts)}</div></div>'
    )


def report_html(runs: Sequence[Run], path: str | os.PathLike[str], title: str = "tot_lab runs") -> Path:
    """Write a report about several runs to read or print: one HTML file without scripts.

    It contains a table of the runs, totals, the shares of lost calls by role (see `tot_lab.record.losses`)
    and for each run its card with a picture of its tree, its long texts, and the full texts on the path to
    the answer. The page is light or dark like the reader's system, and light in print. An existing file is
    replaced atomically. `run.save_html` and `sweep.save_html` write pages that open every thought.

    Args:
        runs: The runs.
        path: File to write.
        title: Title of the page.

    Returns:
        The path of the file.
    """
    summaries = list(map(RunSummary, runs))
    badge = _badge_html(model_note(summary.model_note for summary in summaries))
    rows = [_row(*one) for one in enumerate(summaries, 1)]
    names = "".join(f"<th>{name}</th>" for name in (rows or [{}])[0])
    table = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row.values())}</tr>" for row in rows)
    body = (
        f"<h1>{escape(printable(title))}{badge}</h1>"
        f"<p>{escape(_totals(runs, summaries))}</p>{_losses_html(runs)}"
        f"<div class=wide><table><thead><tr>{names}</tr></thead><tbody>{table}</tbody></table></div>"
        f"<h2>Runs</h2>{''.join(map(_section, count(1), runs, summaries))}"
    )
    return write_whole(html_file(path), document(title, body).encode())


def _format_tools(carried_out: Sequence[CallRow]) -> str:
    """Format the number of calls of each tool, and the number of failed calls among them."""
    names = [(printable(tool_of(row.call) or ""), row.reply and row.reply.error) for row in carried_out]
    called, failed = Counter(name for name, _ in names), Counter(name for name, error in names if error)
    return ", ".join(
        f"{count:,} × {name}" + (f" ({failed[name]:,} failed)" if failed[name] else "")
        for name, count in sorted(called.items(), key=lambda pair: (-pair[1], pair[0]))
    )


def _format_tool_time(run: Run, carried_out: Sequence[CallRow]) -> str:
    """Format the total time of the tool calls `carried_out`, or "" if it is unknown."""
    took = [row.answered.t - row.line.t for row in carried_out if row.answered]
    return f", {sum(took):.2f} s in tools" if took and "times" not in run.header.unknown else ""


_REPEATED = "(the question)"
"""Shown for a thought that repeats the question, if the question is longer than this text."""


def _tree_row(node: Node, used: int, question: str) -> str:
    none = "?" if node.unreadable else "–"
    score = (
        ""
        if node.parent is None or node.by == "root"
        else f"{none if node.score is None else format_score(node.score):<5} "
    )
    state = "" if node.parent is None or node.state in ("proposed", "kept") else f"[{node.state}] "
    is_repeated = node.parent is not None and node.text == question and len(question) > len(_REPEATED)
    text = _REPEATED if is_repeated else node.text
    return f"{score}{state}{short(text, max(92 - used - len(score + state), 20))}"


def _format_seconds(seconds: float) -> str:
    return "time unknown" if isnan(seconds) else f"{seconds:,.2f} s"


def _badge_html(note: str) -> str:
    style = f"{_PILL};{_SMALL};border-color:{PATH};opacity:1;font-weight:600;white-space:nowrap"
    return note and f'<span style="{style}">{note}</span>'


def _tree_html(run: Run) -> str:
    """Return an image of the tree. It is cached on the run until the run's marks change."""
    count, marks = len(run.tree), run.marks
    if count == 0:
        return '<div style="opacity:.65">no thoughts yet</div>'
    if run.__dict__.get("_drawn", ("", ""))[0] != marks:
        run.__dict__["_drawn"] = marks, svg_url(tree_svg(run, MAX_DRAWN))
    part = f'<div style="opacity:.65">the {MAX_DRAWN} most relevant of {count:,} thoughts</div>'
    return (
        f"{part if count > MAX_DRAWN else ''}"
        f'<img alt="The tree of {count:,} thoughts" src="{run.__dict__["_drawn"][1]}" '
        'style="max-width:100%;height:auto;border-radius:6px">'
    )


def _totals(runs: Sequence[Run], summaries: Sequence[RunSummary]) -> str:
    """Return the totals over all runs as text. A total is unknown if a summand is unknown."""
    used = list(zip(*(run.usage for run in runs), strict=True)) or [()] * len(Usage._fields)
    calls, _, *amounts = (None if None in column else sum(filter(None, column)) for column in used)
    tokens_in, tokens_out, cost, paid = amounts
    verdicts = Counter(summary.verdict[:1] for summary in summaries)
    right, graded = verdicts["✓"], verdicts["✓"] + verdicts["✗"]
    failed = sum(run.failure is not None for run in runs)
    tools = sum(summary.carried_out for summary in summaries)
    return _join(
        f"{len(runs):,} runs",
        f"{right:,} of {graded:,} correct ({right / graded:.0%})" if graded else "",
        f"{failed:,} failed" if failed else "",
        f"{number(calls)} calls",
        f"{tools:,} tool calls" if tools else "",
        f"{number(tokens_in)} tokens in, {number(tokens_out)} tokens out",
        f"cost {money(cost)}",
        f"paid {money(paid)}",
        _format_seconds(sum(run.seconds for run in runs)),
    )


def _losses_html(runs: Sequence[Run]) -> str:
    """Return a line about the lost calls of all runs, emphasised if their share is large."""
    losses = total(map(losses_of, runs))
    if warning := warning_of({"": losses}):
        return f"<p><b class=warning>{escape(warning[0].upper() + warning[1:])}</b></p>"
    return f"<p>lost calls: {escape(describe(losses) or 'unknown')}</p>"


def _row(place: int, summary: RunSummary) -> dict[str, str]:
    """Return the cells of a run by column, as HTML."""
    cells = {
        "question": summary.question,
        "strategy": summary.strategy,
        "model": summary.model,
        "answer": summary.answer or "none",
        "correct": summary.verdict or "unknown",
        **summary.facts(),
    }
    link = {"": f"<a href=#run-{place}>{place}</a>"}
    return link | {name: escape(short(text, 120)) for name, text in cells.items()}


def _section(place: int, run: Run, summary: RunSummary) -> str:
    """Return the card of a run, the texts that the card shortens, and the path to the answer."""
    texts = ""
    limits = {"question": LINE, "answer": LINE, "tools": CELL}
    for name, most in limits.items():
        text = getattr(summary, name)
        shown = text_to_html(text, mathml=True)
        if len(text) > most or "<math" in shown:
            texts += f"<p>{name}</p><div class=text>{shown}</div>"
    return f"<section id=run-{place}><h3>{place}</h3>{run_html(run)}{texts}{_path_html(run)}</section>"


def _line_html(text: str) -> str:
    """Render a text as HTML. A text longer than `LINE` is truncated on one line, without Markdown."""
    if len(text) > LINE:
        return html_text(short(text, LINE))
    return text_to_html(text).strip().removeprefix("<p>").removesuffix("</p>")


def _path_html(run: Run) -> str:
    """Return the scores and the full texts of the thoughts that lead from the root to the answer."""
    path, outside = [run.tree[id] for id in run.solution_path[1:]], from_outside(run)
    items = "".join(
        f"<li><span>{escape(_format_fate(node))}</span>{_outside_html(outside.get(node.id))}"
        f"<div class=text>{text_to_html(node.text, mathml=True)}</div></li>"
        for node in path
    )
    return f"<p>path to the answer</p><ol>{items}</ol>" if path else ""


def _outside_html(tool: str | None) -> str:
    """Return the label of a text that `tool` fetched from outside the lab, or "" if `tool` is `None`."""
    return f" <b class=outside>from outside ({escape(printable(tool))})</b>" if tool else ""


def _format_fate(node: Node) -> str:
    score = judgement_of(node).score
    value = "unreadable" if node.unreadable else "" if score is None else f"score {format_score(score)}"
    return _join(node.id, node.state, value)
