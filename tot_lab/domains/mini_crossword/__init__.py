"""Mini crosswords: ten clues, five words across and five down (Yao et al. 2023, section 4.3).

The domain computes the grid, and the model finds the words. A step fills one clue and changes no known
letter. Other proposals are dropped, and `MiniCrossword.dropped` lists them. A step is stored in one canonical
form, `h2. other (grid: _____ other _____ _____ _____)`, without other text of the model. Only `solvable` and
`grade` use the solution. The evaluator of a search has to judge whether a word answers its clue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from tot_lab.core.reading.answers import final_answer, whole_answer
from tot_lab.core.reading.scores import read_label
from tot_lab.core.task import Path, Task
from tot_lab.domains.mini_crossword.puzzles import puzzles
from tot_lab.domains.states import StateDomain, picks_schema, read_picks

NAMES = tuple(f"{direction}{number}" for direction in "hv" for number in range(1, 6))
"""Names of the clues: h1 to h5 across, from the top, and v1 to v5 down, from the left."""

CONFIDENCE = {"certain": 1.0, "high": 0.5, "medium": 0.2, "low": 0.1}
"""Weight of each level of confidence. The weights of a repeated word are added, as in the published code."""

EMPTY = "_" * 25
"""The cells of an empty grid, row by row. `_` is an unknown letter."""

CLUE = re.compile(r"^([hv][1-5])\. (.+)$", re.MULTILINE)
"""Pattern of a clue in a question: its name and its text."""

_RULES = (
    "Mini crossword: a grid of 5 rows and 5 columns, with a letter in every cell. h1 to h5 are the words "
    "across, from the top row down; v1 to v5 are the words down, from the left column on. Every word has "
    "5 letters."
)
_LIKE = (
    "the clue's name, the word, and how sure you are of it (certain, high, medium or low), in the form of "
    "this example, in which h0 stands for the name:\nh0. plumb (medium)"
)
_CELLS = {name: range(5 * k, 5 * k + 5) if k < 5 else range(k - 5, 25, 5) for k, name in enumerate(NAMES)}
_UNCLEAR = "unclear from the steps"

_LINE = re.compile(r"[^A-Za-z]{0,20}([hv])[ \t]?([1-5])(?!\d)[^A-Za-z]{0,10}(.*)", re.IGNORECASE)
_BRACKETED = re.compile(r"[(\[]\W{0,4}(certain|high|medium|low)\b", re.IGNORECASE)
_BARE = re.compile(r"\b(certain|high|medium|low)\b", re.IGNORECASE)
_SPACED = re.compile(r"[A-Za-z](?:[ \t-][A-Za-z]){4}(?![A-Za-z])")
_COLON = re.compile(r"[:=→]|->")
_LETTERS = re.compile(r"[^\W\d]+")
_WORD = re.compile(r"[A-Za-z]+")
_GRID = re.compile(r"\(grid:([^()]{0,80})\)", re.IGNORECASE)
_ROW_NAME = re.compile(r"\A[^A-Za-z_]{0,20}h?[ \t]?[1-5][.:)][*_`]{0,2}(?=[ \t])", re.IGNORECASE)


class CrosswordScores(NamedTuple):
    """How much of an answer to a crossword is right."""

    words: float
    """Share of the ten words, 0–1."""

    letters: float
    """Share of the 25 letters, 0–1."""

    game: float
    """1.0 if the whole grid is right, else 0.0."""


class Dropped(NamedTuple):
    """A proposal that is not a valid step."""

    line: str
    """The line that the model wrote. A proposal in JSON is shown as such a line: `h1. apple (high)`."""

    reason: str
    """The reason why the proposal is not valid."""


class _Fill(NamedTuple):
    """A word proposed for a clue."""

    name: str
    word: str
    confidence: float
    line: str


_WORDS = "the five words across, from the top row down"


class MiniCrossword(StateDomain):
    """5x5 mini crosswords. `mini_crossword` makes its tasks. The question of a task is the list of clues.

    The value of a state is the value of its worst clue, so one impossible clue makes it 0. The clues are
    judged together in one reply (evaluator `value`), or each in a separate call (`parts`), as in the paper.
    `sure` and `maybe` have the same value, because the search of the paper only checks whether a clue is
    impossible, and orders states by the confidence of the proposer. A path is complete when the grid is full.
    Its answer is the five words across.

    References:
        Yao et al. 2023, section 4.3.
    """

    kind = "mini_crossword"
    player = "sim/mini_crossword"
    value_labels: ClassVar[dict[str, float]] = {"sure": 1.0, "maybe": 1.0, "impossible": 0.0}
    step_name = "word"
    most_promising = "the most likely to become the right grid"
    worst = "its word is wrong, or a crossing clue cannot be answered after it"
    surest = "it is certainly right"

    structured: bool = False
    """If `True`, the model names a clue, a word and its confidence under a JSON schema. If `False`, it writes
    lines of text."""

    # Prompts.

    @classmethod
    def task_factory(cls) -> Callable[..., Task]:
        return mini_crossword

    @classmethod
    def example_tasks(cls) -> Callable[..., list[Task]]:
        return mini_crossword_tasks

    def sample_prompt(self, task: Task, path: Path) -> str:
        ask = (
            "Find the word for one clue that is still open, the one that you are surest of. "
            "It must fit the letters that are there and change none. "
        )
        if self.structured:
            ask += 'Reply in JSON like this example: {"clue": "h0", "word": "plumb", "confidence": "high"}'
        else:
            ask += f"Write that one line and nothing else: {_LIKE}"
        return self._ask_step(task, path, ask)

    def propose_prompt(self, task: Task, path: Path, count: int) -> str:
        ask = (
            "Find words for the clues that are still open, and for a clue more than one where you hesitate. "
            f"The {count} that you are surest of will be tried. "
            "A word must fit the letters that are there and change none. "
        )
        if self.structured:
            example = '{"words": [{"clue": "h0", "word": "plumb", "confidence": "high"}]}'
            ask += f"Reply in JSON like this example: {example}"
        else:
            ask += f"Write one line for each word and nothing else: {_LIKE}"
        return self._ask_step(task, path, ask)

    def value_prompt(self, task: Task, path: Path) -> str:
        grid = _walk(path)
        judged = NAMES if grid is None else _judgeable_clues(grid) or NAMES
        ask = (
            "Judge whether each of the clues listed after the candidate can be answered by a word that has "
            "its letters. Think of words for each, in brief. Then end with one line for each clue: its name, "
            "and sure if you know a word that answers it and has its letters, maybe if there could be one, "
            "impossible if there is none. A line looks like this: v0: maybe"
        )
        return self._about_last(task, path, ask, self._letters(path, judged))

    def part_prompts(self, task: Task, path: Path) -> list[str]:
        """Return one prompt for each clue with at least two known letters, as in the published code.

        A prompt contains only one clue, so that states with equal letters share a call.
        """
        grid = _walk(path) or EMPTY
        clues = dict.fromkeys(NAMES, "") | dict(CLUE.findall(task.question))
        known = f"What is known so far:\n{task.context}\n\n" if task.context else ""
        return [
            f"{known}Judge whether this clue of a crossword can be answered by a word of 5 letters that has "
            "its letters. Think of words for it, in brief. The last line is one word alone: sure if you know "
            "a word that answers it and has its letters, maybe if there could be one, impossible if there is "
            f"none.\n\nClue:\n{name}. {clues[name]}\nLetters so far:\n{_patterns(grid, [name])}"
            for name in _judgeable_clues(grid)
        ]

    def max_parts(self, task: Task) -> int:
        return len(NAMES)

    def judge_prompt(self, task: Task, path: Path) -> str:
        ask = (
            "Does the candidate answer its clue, and can every other clue still be answered by a word that "
            "has the letters after it? Reply with one word, yes or no."
        )
        return self._about_last(task, path, ask, self._letters(path))

    def answer_prompt(self, task: Task, reasoning: bool) -> str:
        line = f"the line\nAnswer: <{_WORDS}>"
        if reasoning:
            ask = f"Think step by step: find one word at a time, and check the crossings. End with {line}"
        else:
            ask = f"Reply with nothing but {line}"
        return f"{self._problem(task)}\n\n{ask}"

    def task_prompt(self, task: Task, reasoning: bool) -> str:
        return f"{self._problem(task)}\n\nA solution is {_WORDS}."

    def response_format(self, purpose: str, task: Task, path: Path) -> dict[str, Any] | None:
        grid = _walk(path)
        if not self.structured or purpose not in ("sample", "propose") or grid is None or "_" not in grid:
            return None
        word = {
            "clue": {"type": "string", "enum": [name for name in NAMES if "_" in letters_of(grid, name)]},
            "word": {"type": "string"},
            "confidence": {"type": "string", "enum": list(CONFIDENCE)},
        }
        return picks_schema(word, "" if purpose == "sample" else "words")

    def _problem(self, task: Task) -> str:
        return f"{_RULES}\n\nClues:\n{self.statement(task)}"

    def _progress(self, task: Task, path: Path) -> str:
        return f"Words so far:\n{self.steps(path)}\nLetters so far:{self._letters(path)}"

    @staticmethod
    def _letters(path: Path, names: Sequence[str] = NAMES) -> str:
        grid = _walk(path)
        return f" {_UNCLEAR}" if grid is None else f"\n{_patterns(grid, names)}"

    def _about_last(self, task: Task, path: Path, ask: str, letters: str) -> str:
        """Return a prompt that asks `ask` about the last word.

        The text before the last word is the same for all siblings.
        """
        last = "\n".join(["Candidate for the next word:", *path[-1:], f"Letters after it:{letters}"])
        return f"{self._position(task, path[:-1])}\n\n{ask}\n\n{last}"

    def _ask_step(self, task: Task, path: Path, ask: str) -> str:
        if "_" not in (_walk(path) or "_"):
            ask = "The grid is full. Reply with the word none."
        return f"{self._position(task, path)}\n\n{ask}"

    # Reading.

    def read_proposals(self, task: Task, path: Path, text: str) -> list[str]:
        """Return the distinct valid steps in a reply, in canonical form, in descending order of confidence.

        Steps of equal confidence keep the order of the reply. Steps without a confidence come last.
        """
        return self.pool_proposals(task, path, [text])

    def pool_proposals(self, task: Task, path: Path, texts: Sequence[str]) -> list[str]:
        """Return the valid steps in several replies, in descending order of the sum of their confidences."""
        grid = _walk(path)
        sure: dict[str, float] = {}
        for fill in (fill for text in texts for fill in _proposed_fills(text)):
            if grid is not None and _why_invalid(grid, fill) is None:
                step = fill_line(grid, fill.name, fill.word)
                sure[step] = sure.get(step, 0.0) + fill.confidence
        return sorted(sure, key=lambda step: -sure[step])

    def dropped(self, task: Task, path: Path, text: str) -> list[Dropped]:
        """Return the proposals of a reply that `read_proposals` drops, with the reasons.

        A word is dropped if it does not have five letters, contradicts known letters, or its clue is already
        filled. If a step of the path cannot be read or is not valid, all words are dropped.
        """
        grid = _walk(path)
        found = [
            (fill.line, _UNCLEAR if grid is None else _why_invalid(grid, fill))
            for fill in _proposed_fills(text)
        ]
        return [Dropped(line, reason) for line, reason in found if reason is not None]

    def read_value(self, text: str) -> float | None:
        """Return the value of the worst clue. If a clue has several lines, the last one counts.

        A reply that names no clue is read as a verdict on the whole grid. A line with two labels makes the
        reply unreadable, unless another clue is impossible.
        """
        verdicts: dict[str, float | None] = {}
        for line in text.splitlines():
            match = _LINE.match(line)
            words = {word.lower() for word in _WORD.findall(match[3])} if match else set()
            labels = words & self.value_labels.keys()
            if match and labels:
                value = self.value_labels[labels.pop()] if len(labels) == 1 else None
                verdicts[(match[1] + match[2]).lower()] = value
        read = [value for value in verdicts.values() if value is not None]
        if not verdicts:
            return read_label(text, self.value_labels)
        return min(read) if len(read) == len(verdicts) or 0.0 in read else None

    def read_part(self, text: str) -> float | None:
        """Return the value of a clue. If several lines have a label, the last one counts."""
        return read_label(text, self.value_labels)

    def read_answer(self, task: Task, text: str) -> str | None:
        """Return the five words across.

        They are read after the last `Answer:` that begins a line, or else from the last five lines that
        contain only a word of five letters or five separate letters.
        """
        return rows_of(grid_in(_stated_answer(text) or text))

    # Rules.

    def complete(self, task: Task, path: Path) -> bool | None:
        """Return `True` if the grid is full, or the last step states an answer.

        Returns `None` if a step of the path cannot be read or is not valid.
        """
        if path and _stated_answer(path[-1]) is not None:
            return True
        grid = _walk(path)
        return None if grid is None else "_" not in grid

    def state(self, task: Task, path: Path) -> Hashable | None:
        """Return the grid: its five rows, with `_` for each unknown letter."""
        return rows_of(_walk(path))

    def answer(self, task: Task, path: Path) -> str | None:
        """Return the five words across, if the grid is full or the last step states an answer."""
        return rows_of(_walk(path)) if self.complete(task, path) else None

    def solvable(self, task: Task, path: Path) -> bool | None:
        """Return whether all letters so far are right.

        Returns `None` if the right grid is not known (`Task.reference`), or if a step of the path cannot be
        read or is not valid.
        """
        solution, grid = _solution(task), _walk(path)
        if solution is None or grid is None:
            return None
        stated = bool(path) and _stated_answer(path[-1]) is not None
        return all(a in (b, "" if stated else "_") for a, b in zip(grid, solution, strict=True))

    def same(self, task: Task, answer: str) -> Hashable:
        return grid_in(answer) or super().same(task, answer)

    def grade(self, task: Task, answer: str) -> float | None:
        """Return the share of the ten words that are right. Returns `None` if the right grid is not known.

        See `mini_crossword_scores` for the letters and the whole game.
        """
        scores = mini_crossword_scores(task, answer)
        return None if scores is None else scores.words


def mini_crossword(
    puzzle: int | Sequence[str], *, answer: str | None = None, structured: bool = False
) -> Task:
    """Make the task of one crossword.

    Args:
        puzzle: The number of a built-in puzzle, from 1 to 24, or ten clues of your own: across from the top,
            then down from the left.
        answer: The five words across, for clues of your own. "" and `None` mean that they are not known.
        structured: See `MiniCrossword.structured`.
    """
    domain = MiniCrossword(structured=structured)
    if isinstance(puzzle, int):
        known = puzzles()
        if not 1 <= puzzle <= len(known) or isinstance(puzzle, bool):
            raise ValueError(f"Unknown puzzle: got puzzle={puzzle}. Pass a number from 1 to {len(known)}.")
        if answer is not None:
            raise ValueError(
                f"answer must be None for a built-in puzzle: got {answer!r:.80}. It is for your own clues."
            )
        chosen = known[puzzle - 1]
        return _task(domain, chosen.clues, " ".join(chosen.rows), f"puzzle {puzzle}")
    clues = [puzzle] if isinstance(puzzle, str) else list(puzzle)
    if len(clues) != 10 or not all(isinstance(clue, str) and clue.strip() for clue in clues):
        raise ValueError(
            "puzzle must contain ten clues that are not empty, h1 to h5 and v1 to v5: "
            f"got {len(clues)} clues, {clues!r:.200}."
        )
    grid = grid_in(answer) if answer else None
    if answer and (grid is None or "_" in grid):
        raise ValueError(f"answer must be five words of five letters: got {answer[:80]!r}.")
    return _task(domain, clues, rows_of(grid), "")


def mini_crossword_tasks(count: int, *, structured: bool = False) -> list[Task]:
    """Make the tasks of the built-in puzzles 1 to `count`, at most 24."""
    if count not in range(1, len(puzzles()) + 1):
        raise ValueError(f"count must be from 1 to {len(puzzles())}, the number of puzzles: got {count!r}.")
    return [mini_crossword(number, structured=structured) for number in range(1, count + 1)]


def mini_crossword_scores(task: Task, answer: str) -> CrosswordScores | None:
    """Compare an answer with the solution.

    Args:
        task: The task of a crossword.
        answer: The five words across, with `_` for an unknown letter, or the text of a thought. A text
            without a readable grid scores 0.

    Returns:
        The shares that are right. `None` if the right grid is not known (`Task.reference`).
    """
    solution = _solution(task)
    if solution is None:
        return None
    grid = grid_in(answer) or EMPTY
    words = sum(letters_of(grid, name) == letters_of(solution, name) for name in NAMES)
    letters = sum(a == b for a, b in zip(grid, solution, strict=True))
    return CrosswordScores(words / 10, letters / 25, float(grid == solution))


def fill_line(grid: str, name: str, word: str) -> str:
    """Return the canonical form of the step that writes `word` at the clue `name` of `grid`."""
    return f"{name}. {word} (grid: {rows_of(fill_cells(grid, name, word))})"


def letters_of(grid: str, name: str) -> str:
    """Return the five letters of the clue `name` in `grid`, with `_` for each unknown letter."""
    return "".join(grid[cell] for cell in _CELLS[name])


def _task(domain: MiniCrossword, clues: Sequence[str], reference: str | None, id: str) -> Task:
    question = "\n".join(f"{name}. {' '.join(clue.split())}" for name, clue in zip(NAMES, clues, strict=True))
    return Task(domain=domain, question=question, reference=reference, id=id)


def _solution(task: Task) -> str | None:
    return None if task.reference is None else grid_in(str(task.reference))


def rows_of(grid: str | None) -> str | None:
    """Return the five rows of a grid, separated by spaces. `None` if `grid` is `None`."""
    return None if grid is None else " ".join(grid[k : k + 5] for k in range(0, 25, 5))


def _patterns(grid: str, names: Sequence[str]) -> str:
    # Letters are separated by spaces so that a tokenizer makes each a separate token.
    return "\n".join(f"{name}: {' '.join(letters_of(grid, name))}" for name in names)


def _judgeable_clues(grid: str) -> list[str]:
    """Return the clues with at least two known letters. Others are not judged."""
    return [name for name in NAMES if letters_of(grid, name).count("_") < 4]


def fill_cells(grid: str, name: str, word: str) -> str:
    """Return the 25 cells after writing `word` at the clue `name`."""
    cells = list(grid)
    for cell, letter in zip(_CELLS[name], word, strict=True):
        cells[cell] = letter
    return "".join(cells)


def _why_invalid(grid: str, fill: _Fill) -> str | None:
    """Return the reason why a word is not a valid step, or `None` if it is valid."""
    there = letters_of(grid, fill.name)
    if len(fill.word) != 5:
        return f"{fill.word[:20]!r} does not have five letters"
    if "_" not in there:
        return f"{fill.name} is filled"
    return None if fits(there, fill.word) else f"{fill.word!r} contradicts {there!r}"


def fits(there: str, word: str) -> bool:
    """Return whether `word` agrees with the known letters `there`, in which `_` matches any letter."""
    return all(a in ("_", b) for a, b in zip(there, word, strict=True))


def _walk(path: Path) -> str | None:
    return _grid_after(tuple(path))


@lru_cache(maxsize=4096)  # a search calls this about ten times for each path
def _grid_after(path: tuple[str, ...]) -> str | None:
    """Return the 25 cells after `path` or, if its last step states an answer, the 25 cells of the answer.

    Returns `None` if a step is not readable or not valid.
    """
    stated = _stated_answer(path[-1]) if path else None
    if stated is not None:
        return grid_in(stated)
    grid = EMPTY
    for step in path:
        fill = next(_proposed_fills(step), None)
        if fill is None or len(fill.word) != 5 or not fits(letters_of(grid, fill.name), fill.word):
            return None
        grid = fill_cells(grid, fill.name, fill.word)
    return grid


def _stated_answer(text: str) -> str | None:
    """Return the text after the last `Answer:`. Unlike `final_answer`, it keeps `_` for unknown letters."""
    return None if final_answer(text) is None else whole_answer(text)


def _proposed_fills(text: str) -> Iterator[_Fill]:
    """Yield the words that `text` proposes for clues, valid or not, in order."""
    found = [fill for pick in read_picks(text, "clue") if (fill := _json_fill(pick))]
    yield from found or filter(None, map(_text_fill, text.splitlines()))


def _json_fill(pick: Mapping[str, Any]) -> _Fill | None:
    """Return the word in a JSON object {clue, word, confidence}."""
    name, word, sure = (str(pick.get(key, ""))[:40].strip() for key in ("clue", "word", "confidence"))
    line = f"{name}. {word} ({sure})"
    if name.lower() not in NAMES or not re.fullmatch("[A-Za-z]+", word):
        return None
    return _Fill(name.lower(), word.lower(), CONFIDENCE.get(sure.lower(), 0.0), line)


def _text_fill(line: str) -> _Fill | None:
    """Return the word in a line such as `h1. apple (high)`, if it contains one clue and one word.

    The text of the clue and a colon may precede the word.
    """
    match = _LINE.match(_GRID.sub("", line))
    if match is None:
        return None
    rest = match[3]
    stated = _BRACKETED.search(rest) or next(reversed(list(_BARE.finditer(rest))), None)
    before = rest[: stated.start()] if stated else rest
    for part in (before, _COLON.split(before)[-1]):
        part = part.strip(" \t*_`\"'.,;:|-–—([")
        spaced = _SPACED.fullmatch(part)
        words = [re.sub("[^A-Za-z]", "", part)] if spaced else _WORD.findall(part)
        if len(words) == 1 and words[0].isascii():
            sure = CONFIDENCE[stated[1].lower()] if stated else 0.0
            return _Fill((match[1] + match[2]).lower(), words[0].lower(), sure, line.strip())
    return None


def grid_in(text: str) -> str | None:
    """Return the 25 cells in `text`, in which `_` is an unknown letter. Returns `None` if there is no grid.

    Accepted forms are the grid of a step, five words of five letters, and 25 separate letters, on one line or
    one row per line.
    """
    shown = _GRID.search(text)
    text = (shown[1] if shown else text).lower()
    cells = _cells(text, 25)
    if cells is not None:
        return cells
    rows = [row for line in text.splitlines() if (row := _cells(_ROW_NAME.sub("", line, count=1), 5))]
    return "".join(rows[-5:]) if len(rows) >= 5 else None


def _cells(text: str, count: int) -> str | None:
    """Return the `count` cells in `text`, if it contains only words of five letters or single letters."""
    parts = _LETTERS.findall(text)
    sizes = {len(part) for part in parts}
    cells = "".join(parts)
    return cells if len(cells) == count and sizes in ({1}, {5}) and cells.isascii() else None
