"""The report on a run of Deep Think as Markdown, as an HTML panel and as a short text.

The layout is that of the "Deep Think" report of Cogtrix, with additions. The panel is rendered from the
Markdown, so that both have the same content. Settings that were clamped to their range, assumed values and
failures are reported where they occurred. Text written by a model cannot change the structure of the report.

The `deep_think` tool returns the Markdown to a model. A change of its wording therefore changes prompts and
cache keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan
from typing import NamedTuple

from tot_lab.analysis.deep_thought import DeepThought, deep_thought
from tot_lab.analysis.gathering import Gathering
from tot_lab.record.run import Run
from tot_lab.strategies.deep_think_replies import IterationResult, ThoughtBranch
from tot_lab.views.figures.theme import short, themed
from tot_lab.views.markdown import escape_line, excerpt, is_paragraph, sanitize, to_html

_CHOSEN = {"keywords": "the words of the task", "model": "the model", "default": "default"}
"""Maps each way to choose the category of a task to its description."""

NAME = 80
"""Maximum number of characters shown of a name."""

LINE = 500
"""Maximum number of characters shown of a verdict, lesson or insight. The solution is never truncated."""


def markdown_of(data: DeepThought, *, answer_first: bool = False) -> str:
    """Return the report as Markdown.

    Args:
        data: The data of the report.
        answer_first: Put the final solution before the iterations, for readers who see only the beginning.
    """
    head, *rest = _sections(data)
    if answer_first:
        rest.sort(key=lambda section: section.foldable)
    parts = [f"# {head.title}", head.body, *map(_section, rest)]
    return _join(*parts, f"---\n\n*{escape_line(_closing_line(data), LINE)}*\n")


def _section(one: _Section) -> str:
    return f"{'' if one.foldable else '---' + chr(10) * 2}## {one.title}\n\n{one.body}"


def html_of(data: DeepThought) -> str:
    """Return the report as an HTML panel."""
    head, *rest = _sections(data)
    parts = [f'<div class="title">{_inline_html(head.title)}</div>{to_html(head.body)}']
    for one in rest:
        title, body = _inline_html(one.title), to_html(one.body)
        if one.foldable:
            is_open = " open" if one.is_open else ""
            parts.append(f"<details{is_open}><summary>{title}</summary>{body}</details>")
        else:
            parts.append(f'<div class="part">{title}</div>{body}')
    parts.append(f'<div class="closing">{_inline_html(escape_line(_closing_line(data), LINE))}</div>')
    return f'<div class="tot-lab-deep-thought"><style>{themed(_STYLE)}</style>{"".join(parts)}</div>'


def text_of(data: DeepThought) -> str:
    """Return a plain-text summary of a few lines."""
    label = f", {data.model_note}" if data.model_note else ""
    rows = [_title(data) + label, f"  task      {short(data.task, 90)}"]
    if data.gathering is not None:
        nothing, calls = data.gathering.nothing, _count(len(data.gathering.uses), "tool call")
        found = f"nothing: {nothing}" if nothing else calls
        rows.append(f"  gathered  {found} · category {data.gathering.category}")
    for result in data.iterations:
        answers = " ← answer" if result.iteration == data.answer_iteration else ""
        best = short(result.branches[0].name, 40)
        rows.append(f"  {result.iteration:<9} {_confidence(result)}, best approach: {best}{answers}")
    if data.unfinished or data.failed:
        why = f": {short(data.failed, 70)}" if data.failed else ""
        rows.append(f"  {len(data.iterations) + 1:<9} not finished{why}")
    return "\n".join([*rows, f"  solution  {short(data.answer, 90) or 'none'}", f"  {_closing_line(data)}"])


class _Section(NamedTuple):
    """A section of the report in Markdown.

    Attributes:
        foldable: Whether the panel can fold the section.
        is_open: Whether a foldable section is initially open.
    """

    title: str
    body: str
    foldable: bool = False
    is_open: bool = False


def _sections(data: DeepThought) -> list[_Section]:
    """Return the sections of the report: head, gathering, each iteration, and the final solution."""
    task = sanitize(data.task.expandtabs(4))  # the "> " of a quotation would shift the tab stops
    if not is_paragraph(task):
        task = "\n".join(f"> {line}".rstrip() for line in task.split("\n"))
    task = _labelled("Task", task)
    clamped = ", ".join(f"`{one.field}` {one.given} → {one.used}" for one in data.clamped)
    label = f" *{data.model_note}*" if data.model_note else ""
    title = f"{_title(data)} — Tree-of-Thought Analysis{label}"
    sections = [_Section(title, _join(task, f"*Clamped:* {clamped}" if clamped else ""))]
    if data.gathering is not None:
        nothing = " · nothing" if data.gathering.nothing else ""
        title = f"Gathered · {data.gathering.category}{nothing}"
        sections.append(_Section(title, _gathering_section(data.gathering), foldable=True))
    for result in data.iterations:
        title = f"Iteration {result.iteration} · {_confidence(result)}"
        is_open = result.iteration == data.answer_iteration
        sections.append(_Section(title, _iteration_section(data, result), foldable=True, is_open=is_open))
    if data.unfinished or data.failed:
        number = len(data.iterations) + 1
        failed = f"*Failed:* {escape_line(data.failed, LINE)}" if data.failed else ""
        body = _join(_iteration_notes(data, number), _approaches(data.unfinished), failed)
        sections.append(_Section(f"Iteration {number} · not finished", body, foldable=True, is_open=True))
    return [*sections, _final_section(data)]


def _gathering_section(data: Gathering) -> str:
    """Return the category of the task, the tool calls and their sources."""
    calls = []
    for use in data.uses:
        sign, failed = ("✗ ", f": failed, {escape_line(use.error, LINE)}") if use.error else ("", "")
        calls.append(f"{sign}`{use.tool}` {escape_line(short(use.arguments, 200), LINE)}{failed}")
    nothing = data.nothing and f"*Nothing was gathered: {data.nothing}.*"
    unaided = "" if data.uses or nothing else "*No tool was called: the notes are the model's own.*"
    return _join(
        f"*Category:* {data.category}, chosen by {_CHOSEN[data.by]} ({escape_line(data.why, LINE)})",
        nothing or unaided,
        "\n".join(f"{k}. {line}" for k, line in enumerate(calls, 1)),
        f"**Sources**\n\n{_bullets(data.sources)}" if data.sources else "",
    )


def _iteration_section(data: DeepThought, result: IterationResult) -> str:
    reflection = [line for line in result.reflection_summary.splitlines() if line.strip()]
    alone = len(reflection) == 1
    return _join(
        _iteration_notes(data, result.iteration, result),
        _approaches(result.branches, result.beam),
        _labelled("Reflection", excerpt(reflection[0], LINE) if alone else _bullets(reflection)),
        _labelled("Next focus", excerpt(result.next_focus, LINE)),
    )


def _iteration_notes(data: DeepThought, number: int, result: IterationResult | None = None) -> str:
    """Return what deviated from the request in iteration `number`, as one line in italics, or "". `result` is
    `None` if the iteration did not finish."""
    what = {one.what: one for one in data.fallbacks if one.iteration == number}
    notes = ["The approaches could not be read; their text became one."] if "branch" in what else []
    if any(one.what == "branch" and one.iteration == number for one in data.cut_off):
        notes.append("The reply that names the approaches is truncated.")
    notes += [
        f"Of {one.given} approaches the first {one.used} were taken."
        for one in data.left_out
        if one.iteration == number
    ]
    notes += [escape_line(one.why, LINE) for one in data.unsure if one.iteration == number]
    cuts = [
        f"{' of '.join(filter(None, [one.text, one.branch]))} ({one.shown:,} of {one.of:,} characters)"
        for one in dict.fromkeys(one for one in data.shortened if one.iteration == number)
    ]
    if cuts:
        notes.append(f"Later phases were shown only the beginning of: {', '.join(cuts)}.")
    if result is not None and result.from_branch:
        name = next(escape_line(one.name, NAME) for one in result.branches if one.id == result.from_branch)
        why = escape_line(what["converge"].error, LINE) if "converge" in what else ""
        notes.append(f"There is no synthesis: the solution of “{name}” stands in its place. {why}".strip())
    elif "converge" in what:
        notes.append("The synthesis could not be read: its text is the solution, and no approach was judged.")
    if result is not None and result.assumed:
        notes.append("Its confidence is assumed and decides nothing.")
    return f"*{' '.join(notes)}*" if notes else ""


def _approaches(branches: Sequence[ThoughtBranch], beam: Sequence[str] = ()) -> str:
    """Return one line per approach. The best has a star; those that the next iteration builds on are bold."""
    lines = [f"Approaches explored ({len(branches)}):", ""] if branches else []
    for place, branch in enumerate(branches):
        name = escape_line(branch.name, NAME) or "(without a name)"
        if branch.error is not None:
            lines.append(f"- ✗ {name}: failed, {escape_line(branch.error, LINE)}")
            continue
        star = " ★" if place == 0 and branch.score is not None else ""
        label = f"**{name}**" if branch.id in beam else name
        known = "no score" if branch.score is None else f"{branch.score:.1f}/10"
        score = f"**[{known}]** " if beam else ""
        text = excerpt(branch.verdict or branch.solution or branch.strategy, LINE if branch.verdict else 200)
        raw = " *(not in the form that was asked for: taken as it is)*" if branch.assumed else ""
        raw = " *(truncated: its confidence is assumed)*" if branch.truncated else raw
        lines.append(f"- {score}{label}{star}{f' — {text}' if text else ''}{raw}")
    return "\n".join(lines)


def _final_section(data: DeepThought) -> _Section:
    """Return the section of the solution, its reasoning and the insights."""
    title = "Final Solution"
    if data.node is None:
        return _Section(title, "*None as yet.*" if data.stop is None else "*There is none.*")
    result = next((one for one in data.iterations if one.iteration == data.answer_iteration), None)
    if result is None:
        why = "No iteration was finished: this is the solution of which its own approach was surest."
        if any(one.solution_node == data.node and one.truncated for one in data.unfinished):
            why += " It is truncated."
        return _Section(title, f"*{why}*\n\n{sanitize(data.answer)}")
    why = f"From iteration {result.iteration} of {len(data.iterations)}, the most confident."
    if result.assumed:
        why = f"From iteration {result.iteration}, the last one: no confidence could be read."
    elif len(data.iterations) == 1:
        why = "From iteration 1, the only one."
    names = {branch.id: escape_line(branch.name, NAME) for branch in result.branches}
    if result.from_branch:
        cut = any(one.id == result.from_branch and one.truncated for one in result.branches)
        why += f" It is the solution of “{names[result.from_branch]}”{', truncated' if cut else ''}."
    taken = _bullets(f"From **{names[one.branch]}**: {one.idea}" for one in result.taken)
    insights = dict.fromkeys(text for one in data.iterations for text in one.insights)
    body = _join(
        f"*{why}*",
        sanitize(data.answer),
        _labelled("Reasoning", _join(sanitize(result.synthesis_reasoning), taken)),
        _labelled("Key insights", _bullets(insights)),
    )
    return _Section(f"{title} ({_confidence(result, ': ')})", body)


def _title(data: DeepThought) -> str:
    return "Deep Think" if data.total == 1 else f"Deep Think {data.number} of {data.total}"


def _confidence(result: IterationResult, sign: str = " ") -> str:
    marks = f"{', assumed' if result.assumed else ''}{', truncated' if result.truncated else ''}"
    return f"confidence{sign}{result.confidence:.1f}/10{marks}"


def _closing_line(data: DeepThought) -> str:
    """Return the last line: counts, time, stop reason and model."""
    branches = [*(branch for result in data.iterations for branch in result.branches), *data.unfinished]
    failed = sum(branch.error is not None for branch in branches)
    counts = [
        _count(len(data.iterations), "iteration"),
        _count(data.branches_explored, "branch") + " explored" + (f" ({failed} failed)" if failed else ""),
        "time unknown" if isnan(data.seconds) else f"{data.seconds:.1f}s elapsed",
    ]
    facts = [
        ", ".join(counts),
        "not finished" if data.stop is None else f"stopped: {data.stop}",
        data.model,
        f"context window unknown: {data.assumed_window:,} tokens assumed" if data.assumed_window else "",
    ]
    return " · ".join(filter(None, facts))


def _count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def _inline_html(markdown: str) -> str:
    return to_html(markdown).removeprefix("<p>").removesuffix("</p>\n")


def _join(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


def _labelled(label: str, text: str) -> str:
    """Return `text` behind a label, or below it if it is more than one line of prose. Empty without text."""
    return f"**{label}:**{' ' if is_paragraph(text) else chr(10) * 2}{text}" if text else ""


def _bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {excerpt(text, LINE)}" for text in texts)


_STYLE = """
.tot-lab-deep-thought { font: var(--text-body)/1.5 var(--font); color: inherit;
  border: 1px solid var(--either-border); border-radius: 8px;
  padding: var(--space-5) var(--space-6); max-width: 880px; overflow-wrap: anywhere }
.tot-lab-deep-thought .title { font-size: var(--text-title); font-weight: 600 }
.tot-lab-deep-thought .title em { margin-left: .4em; padding: var(--space-1) var(--space-4);
  border: 1px solid var(--light-path); border-radius: 9px; font-size: var(--text-small); font-style: normal }
.tot-lab-deep-thought :is(.part, details) { border-top: 1px solid var(--either-border) }
.tot-lab-deep-thought .part { font-size: var(--text-lead); font-weight: 600;
  margin-top: var(--space-4); padding-top: var(--space-4) }
.tot-lab-deep-thought summary { cursor: pointer; font-weight: 600; padding: var(--space-2) 0 }
.tot-lab-deep-thought :is(p, ul, ol, pre, table) { margin: var(--space-3) 0 }
.tot-lab-deep-thought :is(ul, ol) { padding-left: var(--space-7) }
.tot-lab-deep-thought blockquote { margin: var(--space-3) 0 var(--space-4); padding: 0 var(--space-5);
  border-left: 3px solid var(--either-border); font-size: var(--text-page); color: inherit }
.tot-lab-deep-thought :is(pre, code) { font-size: var(--text-note); color: inherit;
  background: var(--either-fill); border-radius: 4px }
.tot-lab-deep-thought code { padding: var(--space-1) var(--space-2) }
.tot-lab-deep-thought pre { padding: var(--space-4) var(--space-4); overflow-x: auto }
.tot-lab-deep-thought pre code { padding: 0; background: none }
.tot-lab-deep-thought table { border-collapse: collapse; color: inherit }
.tot-lab-deep-thought :is(th, td) { border: 1px solid var(--either-border);
  padding: var(--space-2) var(--space-4); text-align: left; background: none }
.tot-lab-deep-thought .closing { font-size: var(--text-small); opacity: .65; margin-top: var(--space-4) }
@media print {
  .tot-lab-deep-thought details::details-content { content-visibility: visible; block-size: auto }
  .tot-lab-deep-thought summary { list-style: none }
  .tot-lab-deep-thought pre { white-space: pre-wrap }
  .tot-lab-deep-thought :is(summary, .title, .part) { break-after: avoid }
  .tot-lab-deep-thought :is(li, pre, tr) { break-inside: avoid }
}
"""


def deep_report(run: Run, *, answer_first: bool = False) -> str:
    """Return the Markdown report on the Deep Think in `run`. See `DeepThought.report`."""
    return markdown_of(deep_thought(run), answer_first=answer_first)
