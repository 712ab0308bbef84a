"""Makes `langsmith.parquet` of `langsmith.jsonl`: the same runs as LangSmith's bulk export writes them.

    pip install pyarrow==26.0.1

The export is Parquet with "equivalent data fields as the Run data format"
(docs.langchain.com/langsmith/data-export, docs.langchain.com/langsmith/run-data-format, read in 2026-11). The
documentation does not state the types of the columns. Those below are the ones that a reader of real exports
declares (`LangSmithRunRaw`, 29 columns, in the package `receipt_langsmith` on GitHub): ids and objects are
texts, and objects are JSON. No export of LangSmith itself was at hand.
"""

import json
from datetime import datetime
from pathlib import Path

import pyarrow
from pyarrow import parquet

HERE = Path(__file__).parent
TEXT, TIME = pyarrow.string(), pyarrow.timestamp("us", "UTC")
COLUMNS = {
    **dict.fromkeys(("id", "trace_id", "parent_run_id", "dotted_order"), TEXT),
    "is_root": pyarrow.bool_(),
    **dict.fromkeys(("parent_run_ids", "name", "run_type", "status", "error"), TEXT),
    **dict.fromkeys(("start_time", "end_time", "first_token_time"), TIME),
    "trace_tier": TEXT,
    **dict.fromkeys(("total_tokens", "prompt_tokens", "completion_tokens"), pyarrow.int64()),
    **dict.fromkeys(("total_cost", "prompt_cost", "completion_cost"), pyarrow.float64()),
    **dict.fromkeys(("inputs", "outputs", "extra", "events", "tags", "feedback_stats"), TEXT),
    **dict.fromkeys(("reference_example_id", "session_id", "tenant_id"), TEXT),
}


def written(name, value):
    """The value of a column."""
    if value is None:
        return None
    if COLUMNS[name] == TIME:
        return datetime.fromisoformat(value)
    if COLUMNS[name] == pyarrow.float64():
        return float(value)
    return json.dumps(value) if isinstance(value, dict | list) else value


runs = [json.loads(line) for line in (HERE / "langsmith.jsonl").read_text().splitlines()]
for run in runs:
    run["is_root"] = "parent_run_id" not in run
rows = [{name: written(name, run.get(name)) for name in COLUMNS} for run in runs]
parquet.write_table(pyarrow.Table.from_pylist(rows, pyarrow.schema(COLUMNS)), HERE / "langsmith.parquet")
print(len(rows), (HERE / "langsmith.parquet").stat().st_size)
