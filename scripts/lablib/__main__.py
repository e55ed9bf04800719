# SPDX-License-Identifier: GPL-2.0
"""What scripts/lab starts."""

import sys

from .main import main

sys.exit(main(sys.argv[1:]))
