"""A language model of a small formal language, which runs in numpy: its language, its network, its training."""
