# SPDX-License-Identifier: GPL-2.0
"""The parts of scripts/test, one file per concern."""
