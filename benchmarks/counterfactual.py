"""What other beams would have done on the published Game of 24 logs, with no new call.

    python benchmarks/counterfactual.py DIR

A puzzle counts as solved, or as not, only where no call lacked. The target is beams 1 to 5 over all
puzzles with zero calls and in less than 10 s.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from published_game24 import recorded

import tot_lab as tl


def main(folder: str) -> None:
    began = time.perf_counter()
    logs = recorded(folder)
    print(f"{'beam':>4}{'solved':>9}{'not':>6}{'unknown':>9}{'answered':>11}{'lacking':>9}")
    for width in range(1, 6):
        setting = tl.presets.game24().model_copy(update={"search.width": width})
        made = tl.counterfactual(logs, setting)
        known = Counter(again.solved for again in made)
        lacking = sum(len(again.lacking) for again in made)
        answered = sum(again.run.usage.calls for again in made) - lacking
        print(f"{width:>4}{known[True]:>9}{known[False]:>6}{known[None]:>9}{answered:>11,}{lacking:>9}")
    print(f"{len(logs)} puzzles, beams 1 to 5: {time.perf_counter() - began:.1f} s (target: less than 10 s)")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
