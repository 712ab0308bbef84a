"""Writes the pages of the documentation site to `build/docs`; Zensical makes `site/` of them (`make docs`).

The pages keep their paths in the repository, so that links between them hold on code hosts and in the site:
the README and everything that it and the guides link to, the notebooks with their stored outputs, and one
page for each room of the API. No code of a page is run.
"""

from __future__ import annotations

import inspect
import re
import shutil
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

import tot_lab as tl
from tot_lab.analysis.deep_thought_methods import DeepThoughtMethods
from tot_lab.core.attach import Attached
from tot_lab.lab.sweeps.sweep_methods import SweepMethods
from tot_lab.record.run_methods import RunMethods

NAMES: Any = tl  # whose stub does not declare the lists of names
ROOT = Path(__file__).parent.parent
PAGES = ROOT / "build" / "docs"
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:)[^)#\s]+")
MODULES = ("tools", "domains", "presets")
"""Names of `tl` that are modules, each with its own names."""

OWNERS = {
    "tl.Run": ("tot_lab.record", RunMethods),
    "tl.Sweep": ("tot_lab.lab", SweepMethods),
    "tl.stats.DeepThought": ("tot_lab.analysis", DeepThoughtMethods),
}
"""Classes with methods of other rooms: their own room, and the base that holds the methods."""

NAVIGATION = """\
nav:
- README.md
- Concepts: docs/concepts
- How-to guides: docs/how-to
- docs/gallery.md
- Notebooks: notebooks
- Studies: docs/studies
- API: api
"""


def main() -> None:
    shutil.rmtree(PAGES, ignore_errors=True)
    guides = (ROOT / "docs").rglob("*.md")
    copy_pages({ROOT / "README.md", *(ROOT / "docs/assets").iterdir(), *guides})
    for name, text in {**notebook_pages(), **api_pages(), ".nav.yml": NAVIGATION}.items():
        write(name, text)


def write(name: str, text: str) -> None:
    path = PAGES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def copy_pages(wanted: set[Path]) -> None:
    """Copy files, and everything in the repository that they link to. Notebooks have pages of their own."""
    done: set[Path] = set()
    while wanted:
        path = wanted.pop()
        done.add(path)
        name = path.relative_to(ROOT)
        if path.suffix == ".md":
            text = path.read_text()
            targets = {(path.parent / link).resolve() for link in LINK.findall(text)}
            wanted |= {one for one in targets if one.is_file() and one.suffix != ".ipynb"} - done
            write(str(name), with_page_links(text))
        else:
            (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, PAGES / name)


def with_page_links(text: str) -> str:
    """Link the pages of notebooks in place of the notebooks and their folder."""
    text = re.sub(r"\]\(([^):]*)\.ipynb\)", r"](\1.md)", text)
    return text.replace("](notebooks)", "](notebooks/README.md)")


def notebook_pages() -> dict[str, str]:
    """The notebooks with their stored outputs as Markdown, by path; writes their pictures."""
    from nbconvert import MarkdownExporter  # noqa: PLC0415  the other pages do not need it

    exporter = MarkdownExporter()
    exporter.register_filter("filter_data_type", shown)
    pages = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        pictures = {"output_files_dir": path.stem, "unique_key": path.stem}
        text, resources = exporter.from_filename(str(path), pictures)
        for name, content in resources["outputs"].items():
            (PAGES / "notebooks" / name).parent.mkdir(parents=True, exist_ok=True)
            (PAGES / "notebooks" / name).write_bytes(content)
        pages[f"notebooks/{path.stem}.md"] = with_page_links(text)
    guide = (ROOT / "docs/how-to/notebooks.md").read_text().replace("../../notebooks/", "")
    rows = re.findall(r"^\|.*\n", with_page_links(guide), re.MULTILINE)
    return {"notebooks/README.md": f"# Notebooks\n\n{''.join(rows)}", **pages}


def shown(output: dict[str, Any]) -> list[str]:
    """The form of an output that a page without scripts shows best."""
    return [next(kind for kind in ("image/png", "text/html", "text/plain") if kind in output)]


def api_pages() -> dict[str, str]:
    """One page per room of the API with its public names, and an index of all names."""
    named: dict[str, list[str]] = defaultdict(list)
    for name, path in [*public_names().items(), *attached_methods().items()]:
        named[path].append(name)
    rooms: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for path, names in named.items():
        home = OWNERS.get(names[0].rpartition(".")[0], (path,))[0]
        rooms[home.split(".")[1]][path] = sorted(names, key=lambda name: (name.count("."), name))
    pages, index = {}, ["# API\n", "`import tot_lab as tl`. Each page describes one room of the package.\n"]
    for room, entries in sorted(rooms.items()):
        about = inspect.cleandoc(import_module(f"tot_lab.{room}").__doc__ or "").partition("\n\n")[0]
        entries = dict(sorted(entries.items(), key=lambda item: item[1][0].lower()))
        lines = [entry(names, path) for path, names in entries.items()]
        links = ", ".join(f"[`{names[0]}`]({room}.md#{path})" for path, names in entries.items())
        pages[f"api/{room}.md"] = "\n".join([f"# tot_lab.{room}\n", about, *lines])
        index += [f"## [tot_lab.{room}]({room}.md)\n", f"{about}\n", links, ""]
    index += ["## Namespaces\n", *(f"- `tl.{name}`: {about}" for name, about in namespaces().items()), ""]
    return {"api/README.md": "\n".join(index), **pages}


def entry(names: list[str], path: str) -> str:
    """The lines that mkdocstrings replaces with the documentation of the object at `path`."""
    heading = " · ".join(names)
    return f"\n::: {path}\n    options:\n      heading: {heading}\n      toc_label: {names[0]}\n"


def public_names() -> dict[str, str]:
    """Map each public name, such as `tl.searches.DVTS`, to the path of the object."""
    places = {f"tl.{name}": place for name, place in NAMES._NAMES.items() if name not in MODULES}
    for space in NAMES._NAMESPACES:
        places |= {f"tl.{space.__name__}.{name}": place for name, place in space.places().items()}
    for module in MODULES:
        found = NAMES._NAMES[module]
        places |= {f"tl.{module}.{name}": f"{found}:{name}" for name in getattr(tl, module).__all__}
    return {name: defined(place) for name, place in places.items()}


def attached_methods() -> dict[str, str]:
    """Map the methods that other rooms attach to a class to the functions that implement them."""
    return {
        f"{owner}.{name}": f"{one.module}.{one.function}"
        for owner, (_, methods) in OWNERS.items()
        for name, one in vars(methods).items()
        if isinstance(one, Attached) and not name.startswith("_")
    }


def defined(place: str) -> str:
    module, _, name = place.partition(":")
    value = getattr(import_module(module), name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{module}.{name}"


def namespaces() -> dict[str, str]:
    spaces = {space.__name__: space.__doc__ for space in NAMES._NAMESPACES}
    spaces |= {name: getattr(tl, name).__doc__ for name in MODULES}
    return {name: spaces[name].partition("\n\n")[0].replace("\n", " ") for name in sorted(spaces)}


if __name__ == "__main__":
    main()
