"""Creative writing: passages of four paragraphs with given last sentences (Yao et al. 2023, section 4.2).

The first step is a plan, and the second step is the passage. The grade is the share of paragraphs that end
with their given sentence. Coherence is not part of the grade; a model can score it from 1 to 10.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tot_lab.core.task import Domain, Path, Task
from tot_lab.domains.creative_writing.closing_sentences import closing_sentences

_RULES = (
    "Write a coherent passage of four short paragraphs. The paragraphs must end in these sentences, in this "
    "order and word for word:"
)
_SCALE = (
    "Rate it from 1 (its parts have nothing to do with each other) to 10 (it reads as one piece). Give your "
    "reasons in a line or two, then end with the line\nscore: N/10"
)

_PLAN = (
    "in one short sentence for each paragraph, say what happens in it and how it comes to its last sentence."
)
_ONLY_THE_PASSAGE = "Write the passage and nothing else, with an empty line between paragraphs."
_NAMES = ("Plan", "Passage")

_HEADING = re.compile(
    r"[\s>*_#]{0,9}(plan|passage|answer)(?:[ \t]+\d{1,3})?[ \t*_]{0,6}(?::[ \t*_]{0,6}(.*)|$)", re.IGNORECASE
)
_SCORE = re.compile(
    r"\bscore\b[ \t*_`:=]{0,9}(?:is|of)?[ \t*_`]{0,9}(\d{1,2}(?:\.\d{1,3})?)"
    r"(?:[ \t]{0,3}(?:/|out of)[ \t]{0,3}10)?(?![\d%]|\.\d|[ \t]{0,3}(?:/|out of|to\b|[-–]))",
    re.IGNORECASE,
)
_PARAGRAPHS = re.compile(r"\n[^\S\n]*\n\s*")
_QUOTES = str.maketrans("‘’‚‛“”„‟", "''''\"\"\"\"")


class CreativeWriting(Domain):
    """Passages with given closing sentences. `creative_writing` makes its tasks.

    The question of a task is the list of sentences. A path is complete with its second step, the passage,
    which is its answer. A value is the coherence from 1 to 10, divided by 10.
    """

    kind = "creative_writing"
    player = "sim/creative_writing"

    # Prompts.

    @classmethod
    def task_factory(cls) -> Callable[..., Task]:
        return creative_writing

    @classmethod
    def example_tasks(cls) -> Callable[..., list[Task]]:
        return creative_writing_tasks

    def sample_prompt(self, task: Task, path: Path) -> str:
        if self.complete(task, path):
            ask = "The passage is written. Reply with the word none."
        elif path:
            ask = f"Follow the plan and write the passage. {_ONLY_THE_PASSAGE}"
        else:
            ask = f"Write a plan for the passage first: {_PLAN} Write the plan alone, not the passage."
        return f"{self._position(task, path)}\n\n{ask}"

    def propose_prompt(self, task: Task, path: Path, count: int) -> str:
        if self.complete(task, path):
            return self.sample_prompt(task, path)
        if path:
            ask = (
                f"Follow the plan and write {count} different passages. Begin each with its number on a line "
                "of its own, as in `Passage 1:`, and write nothing else."
            )
        else:
            ask = (
                f"Write {count} different plans for the passage: {_PLAN} Begin each with its number on a "
                "line of its own, as in `Plan 1:`, and do not write a passage."
            )
        return f"{self._position(task, path)}\n\n{ask}"

    def value_prompt(self, task: Task, path: Path) -> str:
        asked = "the passage at the end" if self._is_passage(path) else "a passage that follows the plan"
        position = self._position(task, path[:-1])
        return f"{position}\n\nHow coherent is {asked}? {_SCALE}\n\n{self._with_heading(path)}"

    def judge_prompt(self, task: Task, path: Path) -> str:
        asked = (
            "Is the passage coherent, and does each of its paragraphs end in its sentence?"
            if self._is_passage(path)
            else "Does this plan lead to a coherent passage whose paragraphs can end in their sentences?"
        )
        return (
            f"{self._position(task, path[:-1])}\n\n{asked} Reply with one word, yes or no.\n\n"
            f"{self._with_heading(path)}"
        )

    def vote_prompt(self, task: Task, paths: Sequence[Path]) -> str:
        before = [list(path[:-1]) for path in paths]
        shared = before[0] if all(steps == before[0] for steps in before) else []
        listed = "\n\n".join(
            f"Candidate {k}\n{self._format_steps(path[len(shared) :], len(shared))}"
            for k, path in enumerate(paths, 1)
        )
        return (
            f"{self._position(task, shared)}\n\n"
            "Which candidate is best: the most coherent, with every paragraph ending in its sentence? Look "
            f"at each in brief, then end with a line `best: N`, N being its number.\n\n{listed}"
        )

    def joint_prompt(self, task: Task, path: Path, candidates: Sequence[str]) -> str:
        listed = "\n\n".join(f"Candidate {k}\n{text}" for k, text in enumerate(candidates, 1))
        return (
            f"{self._position(task, path)}\n\n"
            "How good is each candidate: coherent, with every paragraph ending in its sentence? Score each "
            f"from 0 to 1. Reply with a JSON array of the {len(candidates)} scores in that order and nothing "
            f"else.\n\n{listed}"
        )

    def answer_prompt(self, task: Task, reasoning: bool) -> str:
        if reasoning:
            ask = (
                f"Make a plan first: {_PLAN} Then write the passage. Begin the plan with the line `Plan:` "
                "and the passage with the line `Passage:`."
            )
        else:
            ask = _ONLY_THE_PASSAGE
        return f"{self._problem(task)}\n\n{ask}"

    def _problem(self, task: Task) -> str:
        return f"{_RULES}\n{self.statement(task)}"

    def _position(self, task: Task, path: Path) -> str:
        shown = self._format_steps(path, 0)
        return f"{self._problem(task)}\n\n{shown}" if shown else self._problem(task)

    def _format_steps(self, steps: Path, before: int) -> str:
        """Return `steps` with their headings. `before` is the number of earlier steps."""
        return "\n\n".join(f"{_NAMES[min(before + k, 1)]}:\n{step}" for k, step in enumerate(steps))

    def _with_heading(self, path: Path) -> str:
        return f"Candidate\n{_NAMES[self._is_passage(path)]}:\n{path[-1]}"

    @staticmethod
    def _is_passage(path: Path) -> bool:
        return len(path) > 1 or any(name == "passage" for step in path for name, _ in _parts(step))

    # Reading.

    def read_sample(self, task: Task, path: Path, text: str) -> str | None:
        """Return the plan, or the passage if the path has a plan already.

        Headings and the rest of the reply are dropped. Returns `None` if the path is complete, or the reply
        contains only the other part.
        """
        if self.complete(task, path):
            return None
        parts = _parts(text)
        wanted = [body for name, body in parts if name == ("passage" if path else "plan")]
        other = {name for name, _ in parts} - {""}
        if wanted:
            return wanted[-1] if path else wanted[0]
        return None if other else text.strip() or None

    def read_proposals(self, task: Task, path: Path, text: str) -> list[str]:
        """Return the plans or passages in a reply, one per heading.

        A reply without headings is one plan or passage.
        """
        if self.complete(task, path):
            return []
        parts = _parts(text)
        if all(name == "" for name, _ in parts):
            return [text.strip()] if text.strip() else []
        return [body for name, body in parts if name == ("passage" if path else "plan")]

    def read_value(self, text: str) -> float | None:
        """Return the coherence from 1 to 10, divided by 10."""
        coherence = self.read_coherence(text)
        return None if coherence is None else coherence / 10

    def read_coherence(self, text: str) -> float | None:
        """Return the coherence in the last `score: N/10` or `score: N`.

        Returns `None` if it is not from 1 to 10.
        """
        stated = [float(match[1]) for match in _SCORE.finditer(text)]
        return stated[-1] if stated and 1 <= stated[-1] <= 10 else None

    def read_answer(self, task: Task, text: str) -> str | None:
        """Return the passage: the text after `Passage:` or `Answer:`, or else the whole reply."""
        passages = [body for name, body in _parts(text) if name == "passage"]
        return passages[-1] if passages else text.strip() or None

    # Rules.

    def complete(self, task: Task, path: Path) -> bool:
        return self._is_passage(path)

    def answer(self, task: Task, path: Path) -> str | None:
        """Return the passage. Returns `None` for a plan."""
        return self.read_answer(task, path[-1]) if self._is_passage(path) else None

    def solvable(self, task: Task, path: Path) -> bool | None:
        """Return whether all paragraphs end in their sentences.

        Returns `None` for a plan, whose passage is still open.
        """
        passage = self.answer(task, path)
        grade = None if passage is None else self.grade(task, passage)
        return None if grade is None else grade == 1.0

    def is_bounded(self, task: Task) -> bool:
        return True

    def grade(self, task: Task, answer: str) -> float | None:
        """Return the share of paragraphs that end in their sentence, 0–1.

        Paragraphs and sentences are compared in order, and only whitespace and the shape of quotation marks
        may differ. A surplus paragraph counts as wrong. Paragraphs are separated by empty lines, or by line
        breaks if there are no empty lines. Returns `None` if the task has no sentences.
        """
        sentences = task.data.get("sentences")
        if not sentences:
            return None
        paragraphs = _PARAGRAPHS.split(answer.strip())
        if len(paragraphs) == 1:
            paragraphs = answer.strip().split("\n")
        kept = sum(
            _ends_with(paragraph, str(last)) for paragraph, last in zip(paragraphs, sentences, strict=False)
        )
        return kept / max(len(paragraphs), len(sentences))


def creative_writing(sentences: int | Sequence[str]) -> Task:
    """Make the task of writing a passage whose four paragraphs end in four sentences.

    Args:
        sentences: The number of a built-in task, from 1 to 20, or four sentences of your own.
    """
    if isinstance(sentences, int):
        known = closing_sentences()
        if not 1 <= sentences <= len(known) or isinstance(sentences, bool):
            raise ValueError(
                f"Unknown task: got sentences={sentences}. Pass a number from 1 to {len(known)}."
            )
        return _task(known[sentences - 1], f"sentences {sentences}")
    own = [sentences] if isinstance(sentences, str) else list(sentences)
    if len(own) != 4 or not all(isinstance(sentence, str) and sentence.strip() for sentence in own):
        raise ValueError(f"sentences must be four texts that are not empty: got {own!r:.200}.")
    return _task(own, "")


def creative_writing_tasks(count: int) -> list[Task]:
    """Make the built-in tasks 1 to `count`, at most 20."""
    known = len(closing_sentences())
    if count not in range(1, known + 1):
        raise ValueError(f"count must be from 1 to {known}, the number of tasks: got {count!r}.")
    return [creative_writing(number) for number in range(1, count + 1)]


def _task(sentences: Sequence[str], id: str) -> Task:
    plain = [" ".join(sentence.split()) for sentence in sentences]
    question = "\n".join(f"{k}. {sentence}" for k, sentence in enumerate(plain, 1))
    return Task(domain=CreativeWriting(), question=question, data={"sentences": plain}, id=id)


def _ends_with(paragraph: str, sentence: str) -> bool:
    text, last = (" ".join(part.translate(_QUOTES).split()) for part in (paragraph, sentence))
    return text.endswith(last) and not text[: -len(last)][-1:].isalnum()


def _parts(text: str) -> list[tuple[str, str]]:
    """Return the parts of a reply as pairs (name, text).

    The name is `plan`, `passage` (also for the heading `Answer:`), or "" for a part without a heading.
    """
    parts: list[tuple[str, list[str]]] = [("", [])]
    for line in text.split("\n"):
        heading = _HEADING.match(line)
        if heading is None:
            parts[-1][1].append(line)
        else:
            name = "plan" if heading[1].lower() == "plan" else "passage"
            parts.append((name, [heading[2] or ""]))
    return [(name, body) for name, lines in parts if (body := "\n".join(lines).strip())]
