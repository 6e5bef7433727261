# SPDX-License-Identifier: Apache-2.0
"""A small shop: catalogue, stock, orders, discounts, payments, refunds, reports."""
