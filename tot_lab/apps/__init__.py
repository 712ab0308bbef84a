"""Applications: the command line, the notebook magics, the servers and `tl.think`."""
