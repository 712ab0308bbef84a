"""A small language model of a formal language: the language, the network in numpy, and the training."""
