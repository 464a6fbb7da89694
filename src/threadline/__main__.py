"""`python -m threadline`: the same as `threadline`."""

import sys

from threadline.cli.main import main

sys.exit(main())
