"""Makes `reflexion.jsonl` and `lats.jsonl` with the authors' own code, whose checkouts are the arguments.

    python make_reflexion.py reflexion/programming_runs LanguageAgentTreeSearch/programming

Their loops (`run_reflexion`, `run_mcts`) and their executor of tests run unchanged. The model is replaced by
the scripts below, so that no text of theirs is in the logs.
"""

import ast
import json
import sys
import types
from pathlib import Path

HERE = Path(__file__).parent
sys.modules["astunparse"] = types.SimpleNamespace(unparse=ast.unparse)

ADD = "def add(x, y):\n    return x {} y\n"
TASKS = [
    {
        "name": "add",
        "language": "py",
        "prompt": 'def add(x, y):\n    """ Add x and y. """\n',
        "entry_point": "add",
        "test": "def check(candidate):\n    assert candidate(2, 3) == 5\n    assert candidate(0, 0) == 0\n",
    },
    {
        "name": "double",
        "language": "py",
        "prompt": 'def double(x):\n    """ Double x. """\n',
        "entry_point": "double",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 6\n",
    },
]


class Script:
    """Gives implementations in order, and a reflection on each failure."""

    def __init__(self, implementations, tests):
        self.implementations, self.tests = iter(implementations), tests

    def internal_tests(self, prompt, model, count):
        return self.tests["add" if "add" in prompt else "double"]

    def func_impl(self, *_, **__):
        return next(self.implementations)

    def self_reflection(self, implementation, feedback, model):
        return f"It fails {feedback.partition('Tests failed:')[2].count('assert')} tests."


def run(folder, module, function, file, implementations, **options):
    sys.path.insert(0, folder)
    for name in ("utils", "executors", "generators", module):
        sys.modules.pop(name, None)
    script = Script(
        implementations,
        {
            "add": ["assert add(2, 3) == 5", "assert add(1, 0) == 1", "assert add(0, 2) == 2"],
            "double": ["assert double(2) == 4"],
        },
    )
    log = HERE / file
    log.unlink(missing_ok=True)

    def write(path, items, append):
        with Path(path).open("a") as file:
            file.writelines(json.dumps(item) + "\n" for item in items)

    sys.modules["utils"] = types.SimpleNamespace(
        write_jsonl=write,
        enumerate_resume=lambda tasks, _: enumerate(tasks),
        make_printv=lambda _: lambda text: None,
        resume_success_count=lambda tasks: 0,
    )
    sys.modules["generators"] = types.SimpleNamespace(
        generator_factory=lambda _: script, model_factory=lambda name: name
    )
    package = types.ModuleType("executors")
    package.__path__ = [f"{folder}/executors"]
    sys.modules["executors"] = package
    for name in [name for name in sys.modules if name.startswith("executors.")]:
        del sys.modules[name]
    from executors.py_executor import PyExecutor

    package.executor_factory = lambda *_, **__: PyExecutor()
    loop = getattr(__import__(module), function)
    loop([dict(task) for task in TASKS], "scripted", "py", 3, 1, str(log), False, **options)
    sys.path.remove(folder)
    print(file, log.stat().st_size, "bytes")


reflexion, lats = sys.argv[1:]
wrong = "def double(x):\n    return {}\n"
run(
    reflexion,
    "reflexion",
    "run_reflexion",
    "reflexion.jsonl",
    [ADD.format("-"), ADD.format("+"), wrong.format("x"), wrong.format("x + 1"), wrong.format("x * x")],
)
run(
    lats,
    "mcts",
    "run_mcts",
    "lats.jsonl",
    [ADD.format("-"), ADD.format("*"), ADD.format("+"), wrong.format("2 * x")],
    n=2,
)
