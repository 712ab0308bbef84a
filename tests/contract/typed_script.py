"""A user's script, checked by mypy with the package (`make lint`) and never run.

Each ignored error must be found: a needless ignore is an error.
"""

from typing import assert_type

from pandas import DataFrame

import tot_lab as tl


async def main(sweep: tl.Sweep) -> DataFrame:
    lab = tl.Lab(tl.sim.SimGame24(), runs=None, mode="off", roles={"evaluate": tl.Role(temperature=0.0)})
    assert_type(lab, tl.Lab)
    tl.Lab("sim/game24", tools=["calculator"], plans=tl.PlanStore("plans.db"), memory="memory.db")
    tl.Lab("sim/game24", modus="off")  # type: ignore[call-arg]
    tl.Lab("sim/game24", mode="never")  # type: ignore[arg-type]
    tl.Lab("sim/game24", timeout="soon")  # type: ignore[arg-type]
    tl.Lab("sim/game24", memory=3)  # type: ignore[arg-type]
    tl.Lab()  # type: ignore[call-arg]
    lab.timeout = 5.0  # type: ignore[misc]
    search = tl.TreeOfThoughts(propose=tl.Propose(count=5), search=tl.searches.BeamSearch(width=2))
    run = await lab.run(search, tl.game24("4 9 10 13"))
    table: DataFrame = run.nodes_df()
    compared: tl.stats.Comparison = tl.stats.compare(sweep, "a", "b")
    print(table, compared, tl.stats.success_rates(sweep), tl.domains.word_sums_tasks(1), tl.presets.__doc__)
    try:
        run.no_such_method()  # type: ignore[attr-defined]
    except tl.errors.CacheMiss:
        assert_type(run, tl.Run)
    return run.calls_df()
