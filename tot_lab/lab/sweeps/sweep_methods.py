"""Methods of `Sweep` that other subpackages implement and attach (`tot_lab.core.attach`).

`sweep_methods.pyi` declares their signatures, and a test compares it with the attached functions.
"""

from collections.abc import Mapping
from typing import ClassVar

from tot_lab.core.attach import NamesNearest


class SweepMethods(NamesNearest):
    """Base of `Sweep` with its attached methods: frames, files and figures."""

    _meant: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(["results", "result", "table", "to_df", "to_dataframe", "to_pandas"], "df()"),
        **dict.fromkeys(["to_csv", "to_latex", "to_parquet"], "save('table.csv'), also .tex and .parquet"),
    }
