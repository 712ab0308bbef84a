"""An evaluator."""

import tot_lab as tl


class Length(tl.evaluators.Evaluator):
    """Prefers long thoughts. Makes no call."""

    kind = "acme_length"

    def score_thought(self, sampler, path, id):
        score = min(len(path[-1]) / 1000, 1.0)
        return [(yield from tl.emit(tl.records.Scored(id, score, by=self.kind)))]
