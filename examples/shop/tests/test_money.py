# SPDX-License-Identifier: Apache-2.0
import unittest

from shop import money


class Money(unittest.TestCase):
    def test_parse(self):
        self.assertEqual(money.parse("12.34"), 1234)
        self.assertEqual(money.parse("7"), 700)

    def test_parse_refuses(self):
        for text in ("", "1.2", "-1.00", "1,00", "1.234", "0x10", "1e3", "9999999999"):
            with self.subTest(text), self.assertRaises(ValueError):
                money.parse(text)

    def test_show(self):
        self.assertEqual(money.show(5), "0.05")
        self.assertEqual(money.show(-1234), "-12.34")

    def test_show_and_parse_agree(self):
        for cents in range(0, 20000, 7):
            self.assertEqual(money.parse(money.show(cents)), cents)

    def test_percent_rounds_half_up(self):
        self.assertEqual(money.percent_of(999, 1000), 100)
        self.assertEqual(money.percent_of(5, 1000), 1)
        self.assertEqual(money.percent_of(4, 1000), 0)
