"""Lines of the designs that the rebuilt tree search, registry and lab are to bring: each fails today.

They are strict: a line that is reached makes its test fail here, and moves to the tests of its part. See
CONFORMANCE.md for what each line demands, and what holds of it today.
"""

import pytest
from support import TASK, Scripted, wait

import tot_lab as tl


def reached_later(line):
    return pytest.mark.xfail(strict=True, reason=f"{line}: comes with the registry and the search axes")


@reached_later("T10")
def test_t10_the_live_stream_has_the_named_events_of_the_frame():
    async def watched():
        stream = tl.Lab(Scripted(), runs=None).stream(tl.TreeOfThoughts(), TASK)
        names = [event.name async for event in stream if isinstance(event, tl.Note)]
        return names, stream.run

    live, made = wait(watched())
    named = [name for name in live if name.startswith("tot.")]
    frame = [name for name in made.events_df()["name"].dropna() if name.startswith("tot.")]
    assert {"tot.started", "tot.level_started", "tot.proposed", "tot.evaluated"} <= set(named)
    assert sorted(named) == sorted(frame)
    assert sum(made.events_df()["id"].eq("0") & made.events_df()["event"].eq("thought")) == 1


@reached_later("M1")
def test_m1_an_alias_of_the_settings_file_is_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tot_lab.toml").write_text('[models.work]\nmodel = "sim/general"\n')
    lab = tl.Lab("work", runs=None)
    assert lab.model == tl.Lab("sim/general").model
    made = wait(tl.Lab(Scripted(), runs=None).run(tl.OneAnswer(model="work"), TASK))
    assert made.usage.errors == 0
