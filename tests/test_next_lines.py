"""Lines of the designs that the rebuilt tree search, registry and lab are to bring: each fails today.

They are strict: a line that is reached makes its test fail here, and moves to the tests of its part. See
CONFORMANCE.md for what each line demands, and what holds of it today.
"""

import pytest
from support import TASK, Scripted, wait

import tot_lab as tl


def reached_later(line):
    return pytest.mark.xfail(strict=True, reason=f"{line}: comes with the registry and the search axes")


@reached_later("M1")
def test_m1_an_alias_of_the_settings_file_is_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tot_lab.toml").write_text('[models.work]\nmodel = "sim/general"\n')
    lab = tl.Lab("work", runs=None)
    assert lab.model == tl.Lab("sim/general").model
    made = wait(tl.Lab(Scripted(), runs=None).run(tl.OneAnswer(model="work"), TASK))
    assert made.usage.errors == 0
