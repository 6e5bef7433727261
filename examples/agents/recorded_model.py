#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Stands in for a language model, so that loop.py runs without a network: three steps, the second one harmful."""

import sys

STEPS = [
    "sed -i 's/A small shop/A small, tidy shop/' README.md",
    "rm -rf shop/orders.py",
    "printf '\\nOrders are in shop/orders.py.\\n' >> README.md",
]

done = len(sys.stdin.readlines())
if done < len(STEPS):
    print(STEPS[done])
