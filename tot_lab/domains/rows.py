"""The rows of a file, a DataFrame or an iterable of dicts, each with its location for error messages."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from tot_lab.core.files import read_gzip, read_regular
from tot_lab.core.parquet import parquet_rows

_Located = tuple[str, Any]  # the location of a row, and its value


class Row:
    """A row of a task file. Errors name the field, or its path in nested objects."""

    def __init__(self, fields: Mapping[str, Any], path: str = "") -> None:
        self.fields = fields
        self._path = path

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def __getitem__(self, name: str) -> Any:
        """Return the value of a field. Null and NaN become "", and arrays of numpy become lists."""
        if name not in self.fields:
            has = ", ".join(repr(self._path + str(key)) for key in self.fields) or "none"
            raise ValueError(f"field {self._path + name!r} is missing: got the fields {has}.")
        value = self.fields[name]
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, list):
            value = [one.tolist() if hasattr(one, "tolist") else one for one in value]
        blank = value is None or (isinstance(value, float) and math.isnan(value))
        return "" if blank or type(value).__name__ in ("NAType", "NaTType") else value  # NA and NaT of pandas

    def first(self, *names: str) -> str:
        """Return the first of `names` that the row has, or else the first name."""
        return next((name for name in names if name in self), names[0])

    def text(self, *names: str) -> str:
        """Return the text of the first of `names` that the row has. Raises ValueError if it is not text."""
        name = self.first(*names)
        value = self[name]
        if not isinstance(value, str):
            self.reject(name, "must contain text", value)
        return value

    def texts(self, name: str) -> list[str]:
        """Return the value of the field `name`, which must be a list of texts."""
        value = self[name]
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self.reject(name, "must contain a list of texts", value)
        return value

    def items(self, name: str) -> list[Row]:
        """Return the value of the field `name`, which must be a list of objects."""
        value = self[name]
        if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
            self.reject(name, "must contain a list of objects", value)
        return [Row(one, f"{self._path}{name}.") for one in value]

    def inner(self, name: str) -> Row:
        """Return the value of the field `name`, which must be an object."""
        value = self[name]
        if not isinstance(value, Mapping):
            self.reject(name, "must contain an object", value)
        return Row(value, f"{self._path}{name}.")

    def reject(self, name: str, what: str, value: Any) -> NoReturn:
        """Raise ValueError for the field `name`. `what` is the requirement, such as "must contain text"."""
        shown = kind_of(value) if not isinstance(value, str) else repr(value[:80])
        raise ValueError(f"field {self._path + name!r} {what}: got {shown}.")


def rows(source: Any) -> Iterator[_Located]:
    """Yield the location, such as `tasks.csv line 2`, and the value of each row of `source`."""
    if isinstance(source, str | Path):
        yield from _rows_of_file(Path(source))
    elif hasattr(source, "columns") and hasattr(source, "to_dict"):  # a DataFrame; pandas is not imported
        yield from _number_rows(source.to_dict("records"))
    elif isinstance(source, Iterable) and not isinstance(source, Mapping):
        yield from _number_rows(source)
    else:
        raise ValueError(
            f"source must be a file name, a DataFrame or an iterable of dicts: got {kind_of(source)}."
        )


def kind_of(value: Any) -> str:
    """Return the type of a value in words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), f"a {type(value).__name__}")


def _rows_of_file(path: Path) -> Iterator[_Located]:
    is_packed = path.suffix.lower() == ".gz"
    suffix = path.with_suffix("").suffix.lower() if is_packed else path.suffix.lower()
    if suffix == ".parquet" and not is_packed:
        yield from _number_rows(parquet_rows(path), f"{path.name} ")
        return
    if suffix not in _READERS:
        raise ValueError(
            f"{path}: unknown file type: got {path.suffix!r}. Use {', '.join(_READERS)} (also with .gz) or "
            f".parquet."
        )
    data = (read_gzip if is_packed else read_regular)(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text: byte {error.start} cannot be decoded.") from None
    del data
    yield from _READERS[suffix](path.name, text.replace("\r\n", "\n").replace("\r", "\n"))


def _number_rows(values: Iterable[Any], name: str = "") -> Iterator[_Located]:
    for k, row in enumerate(values, 1):
        yield f"{name}row {k}", row


def _json_lines(name: str, text: str) -> Iterator[_Located]:
    at, k = 0, 1
    for found in re.finditer(r"[^\n]+", text):  # `splitlines` splits at U+2028, which JSON allows
        k += text.count("\n", at, found.start())
        at = found.start()
        if not found[0].isspace():
            yield f"{name} line {k}", _json(f"{name} line {k}", found[0])


def _json_list(name: str, text: str) -> Iterator[_Located]:
    first, _, rest = text.strip().partition("\n")
    if first.startswith("{") and first.rstrip().endswith("}") and rest.strip().startswith("{"):
        yield from _json_lines(name, text)  # data set hubs use the suffix `.json` for JSON Lines too
        return
    found = _json(name, text)
    if isinstance(found, dict):
        lists = [value for value in found.values() if isinstance(value, list)]
        if len(lists) == 1:
            found = lists[0]  # such as the examples of a BIG-bench task
    if not isinstance(found, list):
        raise ValueError(
            f"{name}: the file must contain a list of objects: got {kind_of(found)}. pandas writes one with "
            'df.to_json(orient="records").'
        )
    yield from _number_rows(found, f"{name} ")


def _json(where: str, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        place = f" line {error.lineno}" if error.lineno > 1 else ""
        raise ValueError(f"{where}{place}: invalid JSON: {error.msg} at column {error.colno}.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: invalid JSON: {error}") from None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number.")


def _csv_rows(name: str, text: str) -> Iterator[_Located]:
    # `StringIO` would copy the text, with four bytes a character.
    lines = (found[0] for found in re.finditer(r"[^\n]*\n|[^\n]+", text))
    reader = csv.DictReader(lines, strict=True)
    try:
        for row in reader:
            cells = {key: cell for key, cell in row.items() if key is not None and cell is not None}
            where = f"{name} line {reader.line_num - sum(cell.count(chr(10)) for cell in cells.values())}"
            if len(row) > len(reader.fieldnames or ()):
                raise ValueError(f"{where}: the row has more cells than the header.")
            yield where, cells
    except csv.Error as error:
        raise ValueError(f"{name} line {reader.line_num}: {error}") from None


_READERS: Mapping[str, Callable[[str, str], Iterator[_Located]]] = {
    ".jsonl": _json_lines,
    ".json": _json_list,
    ".csv": _csv_rows,
}
