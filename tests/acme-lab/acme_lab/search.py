"""A search."""

import tot_lab as tl


class Greedy(tl.searches.Search):
    """Continues from the best thought of each level."""

    kind = "acme_greedy"

    def run(self, state):
        level = [state.root]
        while level:
            children = yield tl.Pick(level)
            kept = yield from state.keep_best(children, 1)
            level = state.open(kept)

    def max_expansions(self, branch, depth):
        return depth

    def max_picks(self, branch, depth):
        return depth
