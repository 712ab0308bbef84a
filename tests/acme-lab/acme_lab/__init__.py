"""An example of a package with one component of each group, a file each."""
