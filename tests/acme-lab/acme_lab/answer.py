"""An answer rule."""

import tot_lab as tl


class Last(tl.answers.AnswerRule):
    """The thought that was proposed last."""

    kind = "acme_last"

    def order(self, nodes, leaves):
        return nodes[::-1]
