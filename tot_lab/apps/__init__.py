"""Applications: the command line, the notebook magics and `tl.think`."""
