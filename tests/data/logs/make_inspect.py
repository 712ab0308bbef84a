"""Makes the logs of Inspect: `pip install inspect_ai==0.3.285`, then `python make_inspect.py`.

No model is asked: `mockllm/model` gives the replies below. `inspect.eval` holds a right answer after a tool
call, a wrong one, and a sample that ended with an error; `inspect_chunked.eval` holds the same with several
entries per sample. In `inspect_scores.json` a model graded the answer, and two further scorers gave several
values and none (`NaN`).
"""

import os
import shutil
import tempfile
from pathlib import Path

os.environ.update(INSPECT_DISPLAY="none", INSPECT_LOG_LEVEL="error")

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import HeadlineMetric
from inspect_ai.log._recorders.chunked.convert import convert_eval_logs_to_chunked
from inspect_ai.model import ChatMessageUser, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, accuracy, match, model_graded_qa, scorer
from inspect_ai.solver import generate, solver, use_tools
from inspect_ai.tool import tool

HERE = Path(__file__).parent


@tool
def add():
    async def execute(x: int, y: int):
        """Add two numbers.

        Args:
            x: First.
            y: Second.
        """
        return x + y

    return execute


@solver
def fails_on_zero():
    async def solve(state, generate):
        if "0" in state.input_text:
            raise ValueError("there is no zero")
        return state

    return solve


@scorer(metrics=[accuracy()])
def brevity():
    async def score(state, target):
        return Score(value=1 / (1 + len(state.output.completion.split())), explanation="shorter is better")

    return score


@scorer(metrics={"right": [accuracy()], "short": [accuracy()]})
def aspects():
    async def score(state, target):
        return Score(value={"right": "C", "short": "I"})

    return score


@scorer(metrics=[accuracy()])
def unscored():
    async def score(state, target):
        return Score(value=float("nan"))

    return score


def said(text, prompt, reply):
    output = ModelOutput.from_content("mockllm/model", text)
    output.usage = ModelUsage(input_tokens=prompt, output_tokens=reply, total_tokens=prompt + reply)
    return output


def asked(prompt, reply, **arguments):
    output = ModelOutput.for_tool_call("mockllm/model", "add", arguments, content="I add them.")
    output.usage = ModelUsage(input_tokens=prompt, output_tokens=reply, total_tokens=prompt + reply)
    return output


SUM = Sample(id="sum", input="What is 2 + 3?", target="5", metadata={"level": 1})
WRONG = Sample(id="wrong", input=[ChatMessageUser(content="What is 7 - 4?")], target="3")
ZERO = Sample(id="zero", input="What is 1 / 0?", target="nothing")


def log(file, samples, replies, scorers=None, headline=None, **options):
    task = Task(
        dataset=samples,
        solver=[use_tools(add()), fails_on_zero(), generate()],
        scorer=scorers or [match(), brevity()],
        headline_metric=headline,
        name="sums",
    )
    model = get_model("mockllm/model", custom_outputs=(reply for reply in replies))
    with tempfile.TemporaryDirectory() as folder:
        [done] = eval(
            task,
            model=model,
            log_dir=folder,
            log_format=Path(file).suffix[1:],
            max_samples=1,
            fail_on_error=False,
            log_model_api=False,
            **options,
        )
        shutil.copy(done.location, HERE / file)
    print(file, done.status, (HERE / file).stat().st_size)


log(
    "inspect.eval",
    [SUM, WRONG, ZERO],
    [asked(20, 5, x=2, y=3), said("ANSWER: 5", 30, 3), said("ANSWER: 4", 10, 2)],
)
log("inspect.json", [WRONG], [said("ANSWER: 4", 10, 2)])
grader = get_model("mockllm/model", custom_outputs=[said("GRADE: C", 100, 9)])
log(
    "inspect_scores.json",
    [WRONG],
    [said("ANSWER: 4", 10, 2)],
    [model_graded_qa(model=grader), aspects(), unscored()],
    HeadlineMetric(scorer="aspects", score="short"),
)
with tempfile.TemporaryDirectory() as folder:
    convert_eval_logs_to_chunked(str(HERE / "inspect.eval"), folder, chunk_size=3)
    shutil.copy(Path(folder) / "inspect.eval", HERE / "inspect_chunked.eval")
