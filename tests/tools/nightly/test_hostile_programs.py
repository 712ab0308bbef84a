"""More than three hundred hostile programs, of a writer who had not read the sandbox: none of them outlives
its call, reaches the lab, or writes outside its folder.
"""

import pytest
from support.hostile import can_contain, outcomes
from support.hostile_programs import programs


@pytest.mark.skipif(not can_contain(), reason="needs: root, unshare and setpriv")
@pytest.mark.parametrize("who", ["root", "user"])
@pytest.mark.parametrize("kind", ["tool", "grader"])
def test_no_program_does_harm(kind, who):
    names = list(programs({}))
    assert len(names) >= 300
    found = outcomes(kind, names, as_user=who == "user")
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
