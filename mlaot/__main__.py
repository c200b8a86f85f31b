"""Run ``python -m mlaot``, the same as ``mlaot``."""

import sys

from mlaot.cli import main

sys.exit(main())
