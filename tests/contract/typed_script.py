"""A user's script, checked by mypy with the package (`make lint`) and never run.

The ignored error must be found: a needless ignore is an error.
"""

from typing import assert_type

from pandas import DataFrame

import tot_lab as tl


async def main(sweep: tl.Sweep) -> DataFrame:
    lab = tl.Lab(tl.sim.SimGame24())
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
