"""Many runs and the one table of them: settings (axes.py), the sweep itself (sweep.py), its frames and
files (tables.py), and the same on the workers of a cluster (distributed.py).
"""
