# SPDX-License-Identifier: GPL-2.0
"""The parts of scripts/lab, one file per concern."""
