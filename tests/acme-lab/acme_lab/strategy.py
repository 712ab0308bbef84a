"""A strategy."""

import tot_lab as tl
from tot_lab.core.records import parent_of


class Twice(tl.Prompting):
    """Ask several times, twice by default, and keep the longest answer."""

    kind = "acme_twice"
    aliases = ("acme-again",)

    samples: int = 2
    """Answers to choose from."""

    def think(self, task, at="0"):
        yield tl.Thought(at, parent_of(at), task.question)
        prompt = task.answer_prompt(False)
        replies = yield from tl.gather(
            [tl.ask(self.call(at, "answer", prompt, index)) for index in range(self.samples)], at_most=1
        )
        for reply in replies:
            if reply.error is not None and reply.error.startswith(("budget:", "cancelled")):
                return tl.Answer("", reply.error)
        best = max(replies, key=lambda reply: len(reply.text))
        if best.error is not None:
            return tl.Answer("", "error")
        thought = yield from tl.emit(tl.Thought(f"{at}.0", at, best.text))
        return tl.Answer(task.domain.read_answer(task, thought.text) or "", "answered", thought.id)

    def max_calls(self, task):
        return self.samples
