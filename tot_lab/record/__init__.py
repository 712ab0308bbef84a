"""Runs on disk: journal, run, marks, imported logs."""
