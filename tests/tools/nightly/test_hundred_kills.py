"""A lab that is killed at a random moment leaves no process behind, whatever it had started."""

import random
import signal
import sys
import time
from importlib.util import find_spec

import pytest
from support import needs_smollm2
from support.dying import Dying, descendants, soon

from tot_lab.core.processes import can_isolate

needs_dask = pytest.mark.skipif(find_spec("distributed") is None, reason="needs: dask")
KINDS = [
    pytest.param("tool", marks=pytest.mark.skipif(not can_isolate(), reason="needs: namespaces for users")),
    *("grader", "math"),
    pytest.param("dask", marks=needs_dask),
    pytest.param("model", marks=needs_smollm2),
]


@pytest.mark.skipif(sys.platform != "linux", reason="needs: /proc")
@pytest.mark.parametrize("kind", KINDS)
def test_twenty_kills(kind, tmp_path):
    moments = random.Random(kind)
    for number in range(20):
        lab = Dying(tmp_path / str(number), kind)
        soon(lambda lab=lab: descendants(lab.process.pid))
        time.sleep(moments.uniform(0, 6))
        print(f"{kind} {number}: {lab.end(signal.SIGKILL):.2f} s")
