"""A language model of a small formal language: its language, its network in numpy, and its training."""
