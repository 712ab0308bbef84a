"""A follower of the runs of a lab."""


class Follower:
    """Keeps the lines of each run by its id."""

    def __init__(self):
        self.lines = {}

    def following(self, header, lines, path):
        kept = self.lines[header.id] = [*lines]

        class Follow:
            def __call__(self, lines):
                kept.extend(lines)

            def close(self):
                pass

        return Follow()
