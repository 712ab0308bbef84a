"""What shows runs: explorer, figures, reports."""
