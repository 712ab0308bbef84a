"""Model backends: one with a fixed name, and one with a prefix."""

import tot_lab as tl


class Parrot(tl.Part):
    """Repeats the prompt."""

    kind = "acme/parrot"

    async def __call__(self, call):
        return call.prompt


class Voice(tl.Part):
    """Replies with the words of its name, `acme:WORDS`, and the sample index."""

    kind = "acme_voice"

    words: str = ""
    """The words."""

    @classmethod
    def named(cls, rest):
        return cls(words=rest)

    async def __call__(self, call):
        return f"{self.words} {call.sample_index}"
