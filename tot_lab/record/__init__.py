"""Runs and their files: journals, marks, and imported logs of other tools."""
