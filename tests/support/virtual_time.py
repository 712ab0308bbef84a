"""An event loop whose clock jumps to the next timer, so that a simulated server takes no real time."""

import asyncio
import selectors


class _Selector(selectors.DefaultSelector):
    """Adds the time that it would wait to `now`."""

    now = 0.0

    def select(self, timeout=None):
        if timeout is not None and timeout > 0:
            self.now += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time. It must not wait for threads or sockets."""

    def __init__(self):
        super().__init__(clock := _Selector())
        self.clock = clock
        self._clock_resolution = 1e-9

    def time(self):
        return self.clock.now


def run_virtually(thing):
    """The result of a coroutine, and the virtual seconds that it took."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        found = runner.run(thing)
        return found, runner.get_loop().time()
