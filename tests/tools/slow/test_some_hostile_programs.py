"""One hostile program of each sort. All of them run at night."""

import pytest
from support.hostile import can_contain, outcomes

SORTS = [
    *("double fork, plain", "daemon with closed files, orphan", "fork bomb, plain", "ignored signals, plain"),
    *("subreaper, plain", "clone with another parent, plain", "stopped group, plain", "kill all, plain"),
    *("enters the namespaces of the lab, plain", "debugger of the lab, plain", "environment of all, thread"),
    *(
        "memory of all, plain",
        "process_vm_readv, plain",
        "steals descriptors, plain",
        "root of the lab, plain",
    ),
    *("root of the lab, plain",),
    *("inherited descriptors, plain", "limits of the lab, plain", "killed first when memory is short, plain"),
    *("absolute write, orphan", "link in place of its folder, plain", "hard link, plain", "user site, plain"),
    *("mounted writable by a root of its own, plain", "unmounted, plain", "device, plain", "chroot, plain"),
    *("memory, plain", "errors for ever, plain", "busy in C with the lock, plain", "end that hangs, plain"),
    *("TCP, plain", "abstract socket, plain", "network of the lab, plain"),
]


@pytest.mark.skipif(not can_contain(), reason="needs: root, unshare and setpriv")
@pytest.mark.parametrize(
    ("kind", "who"), [("tool", "root"), pytest.param("grader", "user", marks=pytest.mark.nightly)]
)
def test_no_program_does_harm(kind, who):
    found = outcomes(kind, SORTS, as_user=who == "user")
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
