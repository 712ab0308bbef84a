"""`python -m tot_lab` is `tot-lab`."""

import sys

from tot_lab.apps.cli import main

sys.exit(main())
