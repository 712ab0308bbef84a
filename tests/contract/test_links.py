"""The pages link what exists."""

import re

from support import ROOT

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "tests/README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
]


def test_the_pages_link_what_exists_and_the_readme_is_short():
    for page in PAGES:
        text = (ROOT / page).read_text()
        for path, anchor in re.findall(r"\]\((?!http)([^)#\s]*)(#[^)]*)?\)", text):
            target = (ROOT / page).parent / path if path else ROOT / page
            assert target.exists(), f"{page} links {path}"
            if anchor:
                titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
                slugs = ["#" + re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
                assert anchor in slugs, f"{page} links {path}{anchor}"
        for notebook in re.findall(r"notebooks/\w+\.ipynb", text):
            assert (ROOT / notebook).exists(), f"{page} names {notebook}"
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 60
