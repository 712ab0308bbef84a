"""What tests of several files stand on."""

import subprocess

import pytest
from providers import Providers


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """No test reads or writes the answers that the person at this machine has paid for."""
    monkeypatch.setenv("TOT_LAB_CACHE", str(tmp_path_factory.mktemp("calls") / "own"))


@pytest.fixture(scope="module")
def shared():
    """A server that speaks the providers' formats."""
    with Providers() as server:
        yield server


@pytest.fixture
def small_disk(tmp_path):
    """Makes a file system of so many kB, where mounting one is permitted."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = False

    def made(size):
        nonlocal mounted
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(folder)]
        try:
            subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"needs a small tmpfs: {getattr(error, 'stderr', '') or error}")
        mounted = True
        return folder

    yield made
    if mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)
