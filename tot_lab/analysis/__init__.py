"""What runs and sweeps say: rates and tests (statistics.py), success with less (matched_cost.py), how good
the evaluator is (judging.py), what another setting would have done (counterfactuals.py), and what went
wrong in one run (diagnosis.py). All are folds over records, and ask no model; what several of them need to
know of a run is in known.py.
"""
