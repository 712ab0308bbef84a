"""Tools for a collection of documents: `search` finds documents, and `open` reads one.

Both tools are pure. They access only the documents, and equal queries give equal results. The settings of the
tools hold only the SHA-256 of the documents. Documents are ranked by BM25, with the full-text index of
SQLite.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import Field, PrivateAttr

from tot_lab.core.tool import Arguments, Name, Tool, fitting, schema_of

_WORD = re.compile(r"\w+")


class Query(Arguments):
    """The arguments of `search`."""

    query: Annotated[str, Field(min_length=1, description="a few words, such as a name")]


class Title(Arguments):
    """The arguments of `open`."""

    title: Annotated[str, Field(description="the exact title")]


class _Documents(Tool):
    """Base of the tools that read documents."""

    kind = ""

    pure: bool = True
    """Always `True`, because the documents do not change."""

    retries: Annotated[int, Field(ge=0)] = 0
    """Retries after a failure."""

    sha256: str
    """SHA-256 of the titles and texts of the documents."""

    _documents: dict[str, str] | None = PrivateAttr(default=None)

    @property
    def documents(self) -> dict[str, str]:
        """The texts of the documents by title.

        Raises:
            LookupError: If the tool was loaded with a saved run, which does not contain the documents.
        """
        if self._documents is None:
            raise LookupError("the documents are not stored in files; make the tools again to use them")
        return self._documents


class SearchDocuments(_Documents):
    """Finds documents by keywords."""

    kind = "search_documents"
    name: Name = "search"
    description: str = (
        "Find documents by words. Gives titles, the best match first, each with the document's first "
        "sentence. Read a document with the tool `open`."
    )
    parameters: dict[str, Any] = schema_of(Query)

    most: Annotated[int, Field(ge=1)] = 5
    """Maximum number of documents in a result."""

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> str:
        words = _WORD.findall(fitting(arguments, Query).query)
        if not words:
            raise ValueError("query: name at least one word to look for")
        found = self._rank(" OR ".join(f'"{word}"' for word in words))
        lines = [f"{k}. {title}: {text.partition('. ')[0]}" for k, (title, text) in enumerate(found, 1)]
        return "\n".join(lines) or "No document has any of these words."

    def _rank(self, query: str) -> list[tuple[str, str]]:
        with closing(sqlite3.connect(":memory:")) as index:
            index.execute(
                "CREATE VIRTUAL TABLE documents USING fts5(title, text, tokenize='porter unicode61')"
            )
            index.executemany("INSERT INTO documents VALUES (?, ?)", self.documents.items())
            return index.execute(
                "SELECT title, text FROM documents WHERE documents MATCH ? "
                "ORDER BY bm25(documents, 4.0, 1.0), title LIMIT ?",
                (query, self.most),
            ).fetchall()


class OpenDocument(_Documents):
    """Reads a document by its exact title."""

    kind = "open_document"
    name: Name = "open"
    description: str = "Read the whole document of a title that the tool `search` gave."
    parameters: dict[str, Any] = schema_of(Title)

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> str:
        title = fitting(arguments, Title).title.strip()
        if title not in self.documents:
            near = get_close_matches(title, self.documents, n=3)
            hint = f"; near it are {', '.join(map(repr, near))}" if near else ""
            raise LookupError(f"there is no document {title!r}{hint}")
        return self.documents[title]


def document_tools(documents: Mapping[str, str]) -> tuple[Tool, Tool]:
    """Make the tools `search` and `open`, for the `tools` of a lab.

    Each search builds the index anew, which is fast enough for a few thousand documents.

    Args:
        documents: Texts by title. Must not be empty.
    """
    held = dict(documents)
    if not held:
        raise ValueError("documents must not be empty.")
    digest = hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()
    tools = SearchDocuments(sha256=digest), OpenDocument(sha256=digest)
    for tool in tools:
        tool._documents = held
    return tools
