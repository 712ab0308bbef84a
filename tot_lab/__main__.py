"""`python -m tot_lab` is `tot-lab`."""

import sys

from tot_lab.cli import main

sys.exit(main())
