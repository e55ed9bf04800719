# SPDX-License-Identifier: GPL-2.0
"""Makes scripts/lablib importable for the tests beside this file."""

import os
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
LAB = os.path.join(TOP, "scripts", "lab")

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "scripts"))
