"""`python -m tot_lab` runs the command `tot-lab`."""

import sys

from tot_lab.apps.cli import main

sys.exit(main())
