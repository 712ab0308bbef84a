"""Code comes out of fences in lists and quotes, with info strings of every common kind."""

import pytest

from tot_lab.core.reading.code import code_blocks, fenced_blocks

CODE = "def dup(xs):\n    return [2 * x for x in xs]"


def indented(text, by):
    return "\n".join(by + line for line in text.split("\n"))


@pytest.mark.parametrize(
    "info",
    [
        "",
        "python",
        "Python",
        "PY",
        "py",
        "py3",
        "python3",
        "python3.11",
        "ipython3",
        'python title="dup.py"',
        "python:dup.py",
        "python:src/dup.py",
        "{.python}",
        "{.python .numberLines}",
        "{python}",
        "{python, echo=FALSE}",
        "python {1,2}",
        "python{1-2}",
        'python linenums="1"',
        "python,ignore",
        "{code-cell} ipython3",
        "dup.py",
        "src/dup.py",
        'title="dup.py"',
        "lang=python",
        "{.py #id}",
        " python ",
        "title='solution'",
        "{1,2}",
        "code",
        "tool_code",
        "python-3",
        "text/x-python",
    ],
)
@pytest.mark.parametrize("fence", ["```", "~~~", "`````"])
def test_an_info_string_names_python_in_any_common_form(info, fence):
    text = f"Here:\n\n{fence}{info}\n{CODE}\n{fence}\n\nDone."
    assert code_blocks(text) == [CODE]


@pytest.mark.parametrize("info", ["js", "bash", "json", "text", "pycon", "python-repl", "pyx", "c++"])
def test_a_block_of_another_language_is_no_python(info):
    assert code_blocks(f"```{info}\nx\n```") == []
    assert code_blocks(f"```{info}\nx\n```\n```\ny\n```") == ["y"]
    assert code_blocks(f"```{info}\nx\n```\n```\ny\n```\n```py\nz\n```") == ["z"]


@pytest.mark.parametrize(
    "text",
    [
        "1. Here:\n" + indented(f"```python\n{CODE}\n```", "   ") + "\n2. Done.",
        "- Code:\n" + indented(f"```python\n{CODE}\n```", "  "),
        "- ```python\n" + indented(f"{CODE}\n```", "  "),
        "10) ```python\n" + indented(f"{CODE}\n```", "    "),
        "- a\n\t- b\n" + indented(f"```python\n{CODE}\n```", "\t\t"),
        indented(f"```python\n{CODE}\n```", "> "),
        indented(f"```python\n{CODE}\n```", ">"),
        indented(f"- ```python\n  {CODE.replace(chr(10), chr(10) + '  ')}\n  ```", "> > "),
        f"Answer: ```python\n{CODE}\n```",
        f"1. Here: ```python\n{indented(CODE, '   ')}\n   ```",
        f"- Here:\n  ```python\n{CODE}\n  ```",  # the code is not indented
        f"```python\n{CODE}```",
        f"```python\n{CODE} ```  \nDone.",
        f"```python\n{CODE}",
        f"````python\n{CODE}\n````",
        f"```python\r\n{CODE}\r\n```\r\n".replace("\n    ", "\r\n    "),
        f"```python\n{CODE}\n```</answer>",
        f"<answer>```python\n{CODE}```</answer>",
        f"```python\n{CODE}```<|im_end|>",
    ],
)
def test_a_fence_may_stand_anywhere(text):
    (block,) = code_blocks(text)
    assert block.strip() == CODE


def test_blocks_are_apart():
    one, two = "a = 1", "b = 2"
    for text in (
        f"```python\n{one}\n```\nThen\n```python\n{two}\n```",
        f"```python\n{one}```\nThen\n~~~py\n{two}\n~~~",
        f"```python\n{one}\n```python\n{two}\n```",  # the first was never closed
    ):
        assert code_blocks(text) == [one, two]


def test_fences_in_code_are_code():
    docstring = 'def f():\n    """Say it.\n\n    ```\n    f()\n    ```\n    """\n    return "```"'
    assert code_blocks(f"```python\n{docstring}\n```") == [docstring]
    inner = "x = '''\n```python\n'''"
    assert code_blocks(f"````python\n{inner}\n````") == [inner]
    assert code_blocks("Write ```print(1)``` there.") == []


def test_indentation_that_is_part_of_the_code_stays():
    assert code_blocks("```python\n    return 1\n```") == ["    return 1"]


def test_a_block_says_where_it_stands():
    text = "a\n```js\nb\n```\nc\n~~~\nd"
    js, rest = fenced_blocks(text)
    assert (text[js.start : js.end], js.info, js.body, js.closed) == ("```js\nb\n```\n", "js", "b", True)
    assert (text[rest.start : rest.end], rest.body, rest.closed) == ("~~~\nd", "d", False)
