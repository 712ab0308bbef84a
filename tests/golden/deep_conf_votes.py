"""What the published package `deepconf` 0.1.0 computes for chains with given token confidences.

`test_deep_conf.py` runs this file in a throwaway environment, and compares the output with
`deep_conf_votes.json`. Reads cases from stdin, writes results to stdout. The package needs a GPU server;
only its file of functions is loaded. tot_lab is not needed.
"""

import json
import sys
from importlib.metadata import files
from importlib.util import module_from_spec, spec_from_file_location
from types import SimpleNamespace

import numpy as np

(PLACE,) = (file for file in files("deepconf") if file.name == "utils.py")
spec = spec_from_file_location("utils", PLACE.locate())
utils = module_from_spec(spec)
spec.loader.exec_module(utils)

KINDS = {"mean": "mean", "tail": "tail", "bottom": "bottom_window", "lowest": "min_window"}


def confidence(chain, kind):
    match kind:
        case "mean":
            return float(utils.calculate_mean_confidence(chain))
        case "tail":
            return float(utils.calculate_tail_confidence(chain))
        case "bottom":
            return float(utils.calculate_bottom_window_confidence(chain))
    return float(utils.calculate_bottom_window_confidence(chain, bottom_percent=-1))


def offline(case, chains):
    """For each kind: the confidences of all chains, and the vote of the most confident."""
    answered = [chain for chain in chains if chain["extracted_answer"]]
    found = {}
    for kind, name in KINDS.items():
        kept = utils.filter_top_confidence(answered, name, case["top"])
        answers = [chain["extracted_answer"] for chain in kept]
        vote = utils.weighted_majority_vote(answers, [confidence(chain, kind) for chain in kept])
        found[kind] = [[confidence(chain, kind) for chain in chains], vote]
    return found


def online(case, chains):
    """The bar of the first chains, and the vote of all chains that reach it."""
    lowest = [min(utils.compute_least_grouped(chain["confs"], case["group"])) for chain in chains]
    bar = float(np.percentile(lowest[: case["warmup"]], 100 - 100 * case["bar"]))
    kept = [
        (chain, value)
        for chain, value in zip(chains, lowest, strict=True)
        if value >= bar and chain["extracted_answer"]
    ]
    answers = [chain["extracted_answer"] for chain, _ in kept]
    return [bar, utils.weighted_majority_vote(answers, [value for _, value in kept])]


def result(case):
    utils.calculate_tail_confidence.__defaults__ = (case["group"],)
    utils.calculate_bottom_window_confidence.__defaults__ = (case["group"], 0.1)
    chains = [{"confs": confs, "extracted_answer": answer} for confs, answer in case["chains"]]
    tokens = [{k: SimpleNamespace(logprob=value) for k, value in enumerate(row)} for row in case["logprobs"]]
    return {
        "offline": offline(case, chains),
        "online": online(case, chains),
        "tokens": utils.compute_confidence(tokens),
    }


if __name__ == "__main__":
    json.dump([result(case) for case in json.load(sys.stdin)], sys.stdout)
