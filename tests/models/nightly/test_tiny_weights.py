"""The shipped weights can do what their card and the pages say, on problems that they were not trained on."""

import json

import tot_lab as tl
from tot_lab.models.tiny.card import card
from tot_lab.models.tiny.endpoint import _SHIPPED
from tot_lab.models.tiny.tasks import held_out_tasks


def test_the_card_is_what_is_measured():
    stored = json.loads((_SHIPPED / "card.json").read_text())["5"]
    measured = card(_SHIPPED / "5.npz", 60)
    for game in ("game24", "countdown"):
        assert stored[game]["auc_of_values"]["all"] > 0.75
        assert measured[game]["auc_of_values"]["all"] > 0.75
        assert measured[game]["legal_steps"] > 0.98
        assert abs(measured[game]["greedy_success"] - stored[game]["greedy_success"]) < 0.2


def test_a_search_solves_more_than_one_answer():
    lab = tl.Lab("tiny/numbers", runs=None, mode="off")
    methods = {"search": tl.TreeOfThoughts(), "answer": tl.ChainOfThought(temperature=0.0)}
    table = lab.sweep_sync(methods, held_out_tasks("game24")[:120]).df()
    solved = table.groupby("setting", observed=True)["correct"].mean()
    assert 0.4 < solved["search"] < 0.9
    assert solved["answer"] < solved["search"] - 0.15
