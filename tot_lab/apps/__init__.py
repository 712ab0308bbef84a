"""Applications: the command line, the notebook magics, Deep Think."""
