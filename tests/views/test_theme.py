"""Colours, sizes of text and distances have one source: tot_lab/views/theme.json."""

import re

import pytest
from support import ROOT

PACKAGE = ROOT / "tot_lab"
JS = PACKAGE / "views" / "explorer" / "js"

LITERALS = {
    "colour": r"(?<![\w&/.\[(])#(?:[0-9a-fA-F]{3,4}){1,2}\b(?!\()|\b(?:rgb|hsl)a?\( *[\d.]|\bok(?:lch|lab)\(",
    "size": r"\bfont(?:-size)?: ?\d+px|\bfont[-_]size=\W?\d|font[\"'=: ]+\{\"size\": (?!1,)\d",
    "distance": r"\b(?:padding|margin|gap)[a-z-]*[\"']?: ?[^;}\n]*?\b[1-9]\d*px",
}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("colour", "color: #fff;"),
        ("colour", 'fill="#1f9e89"'),
        ("colour", "0 4px 16px #0003;"),
        ("colour", "rgba(128, 128, 128, .35)"),
        ("size", "font: 13px/1.5 Inter"),
        ("size", "font-size:11px"),
        ("size", 'font-size="9"'),
        ("size", 'font={"size": 14}'),
        ("size", '"tickfont": {"size": 10}'),
        ("size", "font_size=11"),
        ("distance", "padding: 0 12px 6px;"),
        ("distance", '"margin": "0 0 4px 13em"'),
        ("distance", "gap:6px 26px"),
    ],
)
def test_a_literal_is_found(kind, text):
    assert re.search(LITERALS[kind], text)


@pytest.mark.parametrize("kind", LITERALS)
def test_no_source_has_a_colour_a_size_or_a_distance_of_its_own(kind):
    files = [
        *PACKAGE.glob("apps/**/*.py"),
        *PACKAGE.glob("views/**/*.py"),
        *JS.glob("*.*js"),
        *JS.glob("*.css"),
    ]
    texts = {file: file.read_text("utf-8") for file in files if "node_modules" not in file.parts}
    assert {JS / "style.css", JS / "theme.js"} <= {*texts}
    found = {file: [*re.finditer(LITERALS[kind], text)] for file, text in texts.items()}
    assert [(file.name, one[0]) for file, ones in found.items() for one in ones] == []
