"""Over two hundred badly written replies of Deep Think, made here out of sound ones: what is read of each.

Rule: damage that leaves no doubt about what was meant is read back whole. A reply that was cut off is read as
far as it goes. Where neither holds, the reply stands for itself, and the iteration goes on.
"""

import itertools
import json
import time
from collections.abc import Callable

import pytest
from support import Scripted, for_each, mostly_nightly, run
from support.deep_thinker import TASK, branches, convergence, development, iterations, notes, thinker

import tot_lab as tl
from tot_lab.strategies.deep_think_replies import Approaches, Convergence, Development
from tot_lab.strategies.structured import _form, _Value
from tot_lab.testing import HOSTILE

LONG = (
    'Keep a table "orders"; it\'s simple:\n\n- id\n- total {in cents}\n\n```sql\nSELECT [1, 2];\n```\nDone.'
)

REPLIES = {
    "branch": branches(),
    "develop": development("a table"),
    "develop at length": development("a table", solution=LONG, execution=LONG),
    "converge": convergence((5, 8, 2)),
    "converge at length": convergence((5, 8, 2), synthesis={"solution": LONG, "reasoning": "Ümlaut, ✓."}),
}
FORMS = {"branch": Approaches, "develop": Development, "converge": Convergence}


def pretty(text: str) -> str:
    return json.dumps(json.loads(text), indent=2, ensure_ascii=False)


def lines_as_they_are(text: str) -> str:
    """With the line breaks inside texts not escaped, as many models write them."""
    return text.replace("\\n", "\n")


def without_end(text: str) -> str:
    return text.rstrip("}]")


def quoted_singly(text: str) -> str:
    return repr(json.loads(text))


def bare_keys(text: str) -> str:
    for key in ("branches", "solution", "synthesis", "confidence", "plan", "evaluations"):
        text = text.replace(f'"{key}":', f"{key}:")
    return text


def with_comments(text: str) -> str:
    first, _, rest = pretty(text).partition("\n")
    return f"{first}  // as asked\n  /* the whole of it */\n{rest}"


def python_words(text: str) -> str:
    return text.replace(": true", ": True").replace(": false", ": False").replace(": null", ": None")


READ_WHOLE: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "pretty": pretty,
    "escaped": lambda text: json.dumps(json.loads(text), ensure_ascii=True),
    "space around": lambda text: f"\n\n  {text}\n \n",
    "a byte order mark": lambda text: f"\ufeff{text}",
    "in a fence": lambda text: f"```json\n{text}\n```",
    "in a bare fence": lambda text: f"```\n{pretty(text)}\n```",
    "in a fence of capitals": lambda text: f"```JSON\n{text}\n```",
    "in a fence with words around": lambda text: (
        f"Here it is:\n\n```json\n{pretty(text)}\n```\n\nThat is all."
    ),
    "a fence that is not closed": lambda text: f"```json\n{text}",
    "words before": lambda text: f"Sure! Here is the JSON that you asked for: {text}",
    "words after": lambda text: f"{text}\n\nLet me know whether this helps.",
    "words around": lambda text: f"My answer is {text} as it should be.",
    "a list before": lambda text: f"Steps: [one], [two]\n{text}",
    "thinking before": lambda text: f"<think>\nIs it {{a: 1}}?\n</think>\n{text}",
    "a comma at the end": lambda text: f"{pretty(text)[:-2]},\n}}",
    "commas at all ends": lambda text: pretty(text).replace("\n]", ",\n]").replace("\n}", ",\n}"),
    "a comma missing": lambda text: pretty(text).replace('",\n', '"\n', 1),
    "the end missing": without_end,
    "the end of a fence and of the text missing": lambda text: f"```json\n{without_end(pretty(text))}",
    "one bracket too many": lambda text: f"{text}}}",
    "bare keys": bare_keys,
    "comments": with_comments,
    "Python's words": python_words,
    "a tab in it": lambda text: text.replace(": ", ":\t", 3),
    "another key more": lambda text: f'{{"note": "mine", {text[1:]}',
    "a key twice": lambda text: f'{{"note": 1, "note": 2, {text[1:]}',
    "line breaks as they are": lines_as_they_are,
    "quoted singly": quoted_singly,
    "Windows' lines": lambda text: pretty(text).replace("\n", "\r\n"),
    "in a list of one": lambda text: f"[{text}]",
    "twice": lambda text: f"{text}\n{text}",
    "an ellipsis behind": lambda text: f"{text}…",
    "a heading before": lambda text: f"# Reply\n\n**JSON**\n\n{text}",
    "in a quotation": lambda text: f"<answer>{text}</answer>",
}
"""Damage after which the whole is to be read."""

CUT_OFF = [0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 0.97]
"""Shares of a reply after which it ends."""

WHOLE = list(itertools.product(REPLIES, READ_WHOLE))
CUT = list(itertools.product(REPLIES, CUT_OFF))

LOST = [("converge at length", "the end of a fence and of the text missing")]
"""Where the repair drops a part."""


def form_of(reply):
    return FORMS[reply.partition(" ")[0]]


def read(reply, text):
    """The first value that fits, as `ask_json` takes it; None when there is none."""
    found = _form(form_of(reply)).read(text)
    return found.value if isinstance(found, _Value) else None


def test_there_are_over_two_hundred():
    assert len(WHOLE) + len(CUT) > 200


@pytest.mark.slow
def test_what_leaves_no_doubt_is_read_whole():
    for_each(WHOLE, is_read_whole)


def is_read_whole(case):
    reply, damage = case
    meant = form_of(reply).model_validate_json(REPLIES[reply])
    found = read(reply, READ_WHOLE[damage](REPLIES[reply]))
    assert (found == meant) is ((reply, damage) not in LOST)


def test_a_lone_surrogate_costs_its_character():
    text = REPLIES["develop"].replace("Keep them", "Keep \\ud800 them")
    assert read("develop", text).solution == "Keep ? them in a table."


@pytest.mark.slow
@pytest.mark.parametrize(("reply", "share"), CUT)
def test_what_was_cut_off_is_read_as_far_as_it_goes_or_stands_for_itself(reply, share):
    stage, text = reply.partition(" ")[0], REPLIES[reply]
    text = text[: int(len(text) * share)]
    found, meant = read(reply, text), form_of(reply).model_validate_json(REPLIES[reply])
    if stage == "develop" and found is not None:
        assert meant.solution.startswith(found.solution.rstrip("\\"))
    if stage == "branch" and found is not None:
        assert [one.name for one in meant.branches][: len(found.branches) - 1] == [
            one.name for one in found.branches[:-1]
        ]
    sound = thinker().reply
    made = run(
        tl.DeepThink(max_iterations=1),
        TASK,
        Scripted(lambda call: text if call.purpose == stage else sound(call)),
    )
    assert made.stop_reason == "limit:iterations"
    assumed = [note["what"] for note in notes(made, "deep_think.assumed")]
    assert set(assumed) == ({stage} if found is None or stage == "converge" else set())
    assert {note["what"] for note in notes(made, "deep_think.truncated")} == {stage}
    if stage == "converge":  # the best branch answers, whatever there is of a synthesis
        assert iterations(made)[0].best_solution.startswith("Keep them in ")
        assert iterations(made)[0].from_branch


@pytest.mark.nightly
@pytest.mark.parametrize("stage", FORMS)
@pytest.mark.parametrize("said", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_that_is_said_breaks_a_stage(stage, said):
    sound = thinker().reply
    reply = Scripted(lambda call: said if call.purpose == stage else sound(call))
    made = run(tl.DeepThink(max_iterations=2), TASK, reply)
    assert made.stop_reason in ("limit:iterations", "error")
    json.dumps([note.data for note in made.events if isinstance(note, tl.Note)])


@pytest.mark.nightly
@pytest.mark.parametrize("stage", mostly_nightly(FORMS, ["branch"]))
def test_a_megabyte_is_read_in_time(stage):
    sound = thinker().reply
    for text in ("word " * 200_000, "{" * 1_000_000, '{"solution": "' + "a" * 1_000_000, '["' * 500_000):
        reply = Scripted(lambda call, text=text: text if call.purpose == stage else sound(call))
        began = time.process_time()
        made = run(tl.DeepThink(max_iterations=1), TASK, reply)
        assert time.process_time() - began < 300  # a quadratic reader takes hours
        assert made.stop_reason == "limit:iterations"
