/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/nesting.h - how deep JSON is nested, seen before it is parsed: the parser, and whoever works on what it makes, recurses once for each level, and those who wait
 * for something (fibers) have small stacks.
 */
#ifndef CAY_CODEC_NESTING_H
#define CAY_CODEC_NESTING_H

#include "base/attr.h"

/**
 * nesting_exceeds() - are objects and arrays in @text, @n bytes that need not be JSON, nested more than @levels deep?
 * Return: never false for JSON that is.
 */
bool nesting_exceeds(const char *text, size_t n, size_t levels);

#endif
