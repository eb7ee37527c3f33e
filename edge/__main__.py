"""`python -m mineru_edge` is the command `mineru-edge`."""

import sys

from .cli import main

sys.exit(main())
