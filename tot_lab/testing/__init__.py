"""Contract tests for your own strategies and domains.

    from tot_lab.testing import check_strategy

    def test_mine():
        check_strategy(MyStrategy())

tot_lab's own strategies pass the same tests. Each function in `PROMISES` checks one requirement, and raises
an AssertionError with the first violation. Neither a model nor a network is needed: a scripted model replies
to calls of every purpose, and its random choices depend on the call alone. In a notebook: `await
asyncio.to_thread(check_strategy, MyStrategy())`.
"""

# The public names of each module are names of this package.

from tot_lab.testing.domains import *  # noqa: F403
from tot_lab.testing.model import *  # noqa: F403
from tot_lab.testing.strategies import *  # noqa: F403
