"""A domain whose thoughts are letters, and a model for it."""

import json

import tot_lab as tl


class Letters(tl.domains.General):
    """Thoughts are letters: sample k of a prompt is the k-th, and prompts end with the path."""

    kind = "tests/letters"

    def sample_prompt(self, task, path):
        return f"{task.context}\nnext after {'/'.join(path)}"

    def propose_prompt(self, task, path, count):
        return f"{count} after {'/'.join(path)}"

    def value_prompt(self, task, path):
        return f"value of {'/'.join(path)}"

    def joint_prompt(self, task, path, candidates):
        return f"joint of {'/'.join(path)}: {', '.join(candidates)}"


TASK_OF_LETTERS = tl.general("Which letters?").model_copy(update={"domain": Letters()})


def letters(call):
    if call.purpose == "sample":
        return "abcdefghijklmnopqrstuvwxyz"[call.sample_index]
    if call.purpose == "propose":
        return "1. a\n2. b" if call.sample_index == 0 else "1. b\n2. c\n3. d"
    if call.purpose == "joint":
        return json.dumps([0.5] * (call.prompt.count(",") + 1))
    if call.purpose == "vote":
        return "best: 1"
    return "score: 0.5"
