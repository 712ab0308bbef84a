"""Formats of published data sets. Each format is a function that converts a `Row` to a task.

To add a format, write the function and add its line to `tot_lab.core.registry`.
The data sets themselves are not part of this package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tot_lab.core.reading.mathematics import last_boxed
from tot_lab.core.task import Task
from tot_lab.domains.general import General, Grading, task_of
from tot_lab.domains.open_ended import OpenEnded
from tot_lab.domains.rows import Row

_OPTION = re.compile(r"^\(([A-Z])\) (.+)$", re.MULTILINE)
_VERDICTS = (("yes", "no"), ("true", "false"), ("valid", "invalid"))


def gsm8k(row: Row) -> Task:
    """GSM8K (Hugging Face `openai/gsm8k`, GitHub `openai/grade-school-math`).

    Fields `question` and `answer`. The answer is a solution that ends with a line such as `#### 42`.
    """
    _, found, number = row.text("answer").rpartition("####")
    if not found:
        row.reject("answer", "must end with a line '#### NUMBER'", row["answer"])
    return _task(row, "number", row.text("question"), number.strip())


def math500(row: Row) -> Task:
    r"""MATH-500 (Hugging Face `HuggingFaceH4/MATH-500`), and MATH (GitHub `hendrycks/math`).

    Fields `problem`, `answer` (or `solution` with a `\boxed` answer), `unique_id`, `subject` and `level`.
    """
    reference = row.text("answer") if "answer" in row else last_boxed(row.text("solution"))
    if reference is None:
        row.reject("solution", "must contain \\boxed{…}", row["solution"])
    about = {name: row[name] for name in ("subject", "type", "level") if name in row}
    return _task(row, "math", row.text("problem"), reference, "unique_id", **about)


def aime(row: Row) -> Task:
    """AIME (Hugging Face `HuggingFaceH4/aime_2024`, `Maxwell-Jia/AIME_2024`, `opencompass/AIME2025`).

    Fields `problem` or `question`, `answer`, and `id`, which may be missing. `Problem`, `Question`, `Answer`
    and `ID` are accepted too.
    """
    question = row.text("problem", "Problem", "question", "Question")
    return _task(row, "number", question, str(row[row.first("answer", "Answer")]), "id", "ID")


def humaneval(row: Row) -> Task:
    """HumanEval (Hugging Face `openai/openai_humaneval`, GitHub `openai/human-eval`).

    Fields `prompt`, `test`, `entry_point` and `task_id`. Grading runs the code that the model wrote.
    """
    prompt = row.text("prompt")
    question = (
        "Complete this Python function. Reply with the whole function in one block of code.\n\n"
        f"```python\n{prompt.rstrip()}\n```"
    )
    tests = f"{row.text('test')}\n\ncheck({row.text('entry_point')})"
    return _task(row, "python", question, tests, "task_id", code_before=prompt)


def mbpp(row: Row) -> Task:
    """MBPP (Hugging Face `google-research-datasets/mbpp`, configurations `full` and `sanitized`).

    Fields `text` or `prompt`, `test_list` and `task_id`. `test_setup_code` and `test_imports` may be missing.
    The question shows the tests, as in the paper (Austin et al. 2021, section 2.1). Grading runs the code
    that the model wrote.
    """
    tests = row.texts("test_list")
    question = (
        f"{row.text('text', 'prompt')}\n\nYour Python code must pass these tests:\n\n"
        + "```python\n{}\n```\n\nReply with one block of code.".format("\n".join(tests))
    )
    before = row.texts("test_imports") if "test_imports" in row else []
    before += [row.text("test_setup_code")] if "test_setup_code" in row else []
    return _task(row, "python", question, "\n".join(filter(None, [*before, *tests])), "task_id")


def arc(row: Row) -> Task:
    """AI2's ARC (Hugging Face `allenai/ai2_arc`, and the files of allenai.org).

    Fields `question`, `choices` with `text` and `label`, `answerKey` and `id`. In the files of allenai.org,
    `question` is an object with `stem` and a list of `choices`.
    """
    if isinstance(row["question"], Mapping):
        inner = row.inner("question")
        question = inner.text("stem")
        choices = {one.text("label"): one.text("text") for one in inner.items("choices")}
    else:
        question, inner = row.text("question"), row.inner("choices")
        labels, texts = inner.texts("label"), inner.texts("text")
        if len(labels) != len(texts):
            inner.reject("text", f"must contain {len(labels)} texts, one for each label", inner["text"])
        choices = dict(zip(labels, texts, strict=True))
    return _choice_task(row, question, choices, row.text("answerKey"), "answerKey")


def arc_agi(row: Row) -> Task:
    """ARC-AGI, which is not the data set of `arc` (GitHub `fchollet/ARC-AGI`, `arcprize/ARC-AGI-2`).

    Fields `train` and `test`, which are lists of pairs of grids `input` and `output`, and `id`. The answer
    consists of all output grids of `test`, in the order of `test`.
    """
    examples, tests = row.items("train"), row.items("test")
    if not tests:
        row.reject("test", "must contain at least one pair of grids", row["test"])
    shown = [f"Input:\n{_grid(one, 'input')}\n\nOutput:\n{_grid(one, 'output')}" for one in examples]
    shown += [f"Input of a test:\n{_grid(one, 'input')}" for one in tests]
    question = (
        "One rule turns each input grid into its output grid. Find the rule, and apply it to the input of "
        "each test. As the answer, write `Answer:` and below it the output grid of each test, in the form of "
        "the examples: a line for each row, with spaces between the cells, and no other text.\n\n"
    )
    reference = "\n\n".join(_grid(one, "output") for one in tests)
    return _task(row, "grid", question + "\n\n".join(shown), reference, "id")


def _grid(row: Row, name: str) -> str:
    lines = row[name]
    is_grid = isinstance(lines, list) and all(isinstance(line, list) and line for line in lines)
    is_grid = is_grid and len(set(map(len, lines))) == 1
    if not is_grid or not all(type(cell) is int and 0 <= cell <= 9 for line in lines for cell in line):
        row.reject(name, "must contain rows of equal length with numbers from 0 to 9", lines)
    return "\n".join(" ".join(map(str, line)) for line in lines)


def bbh(row: Row) -> Task:
    """BIG-Bench Hard (Hugging Face `lukaemon/bbh`, GitHub `suzgunmirac/BIG-Bench-Hard`).

    Fields `input` and `target`. A target such as `(A)` is graded as a choice among the options in `input`,
    and `Yes`, `True` or `valid` as a choice of two. A number is graded by `number`, any other text by
    `exact`.
    """
    question, target = row.text("input"), row.text("target").strip()
    choices = dict(_OPTION.findall(question))
    if target.strip("()") in choices:
        return _task(row, "choice", question, target.strip("()"), choices=choices)
    for pair in _VERDICTS:
        if target.lower() in pair:
            return _task(row, "choice", question, target.lower(), choices=dict.fromkeys(pair, ""))
    is_number = re.fullmatch(r"-?\d+(?:\.\d+)?", target) is not None
    return _task(row, "number" if is_number else "exact", question, target)


def strategyqa(row: Row) -> Task:
    """StrategyQA (Hugging Face `ChilleD/StrategyQA`, GitHub `eladsegal/strategyqa`).

    Fields `question`, `answer`, which is true or false, and `qid`.
    """
    answer = row["answer"]
    if not isinstance(answer, bool):
        row.reject("answer", "must contain true or false", answer)
    question = f"{row.text('question')} Answer yes or no."
    choices = {"yes": "true", "no": "false"}
    return _task(row, "choice", question, "yes" if answer else "no", "qid", choices=choices)


def _choice_task(row: Row, question: str, choices: dict[str, str], label: str, field: str) -> Task:
    if label not in choices:
        row.reject(field, f"must be one of the labels {', '.join(choices) or 'none'}", label)
    listed = "\n".join(f"({name}) {text}" for name, text in choices.items())
    question = f"{question}\n\n{listed}\n\nAnswer with the label of the right choice."
    return _task(row, "choice", question, label, "id", choices=choices)


def _task(row: Row, grade: Grading, question: str, reference: str, *ids: str, **data: object) -> Task:
    """Make a task. Its id is the first of the fields `ids` that the row has."""
    domain = (OpenEnded if grade == "python" else General)(grading=grade)
    id = next((str(row[name]) for name in ids if name in row), "")
    return task_of(domain, question, reference, id=id, data=data)
