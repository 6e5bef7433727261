/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: fuzz/fuzz.h - what every fuzz target shares.
 *
 * fuzz_<file>.c tests src/codec/<file>.c: it hands the bytes to every decoder of that file and checks what must hold for any input
 * (what was read can be written and read again, nothing reads past the end: inputs are exact copies on the heap). The same file is linked with
 * libFuzzer (make fuzz) and with replay.c, which runs the committed corpus in every build.
 */
#ifndef CAY_FUZZ_H
#define CAY_FUZZ_H

#include "base/attr.h"
#include <string.h>

/** LLVMFuzzerTestOneInput() - one input. Return: 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** MUST() - an invariant; fails in every build, unlike assert under NDEBUG. */
#define MUST(cond) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #cond); \
			abort(); \
		} \
	} while (0)

/** fuzz_text() - the bytes as a C string on the heap, cut at the first NUL; free(). */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
	size_t n = strnlen((const char *)data, size);
	char *s = xalloc(n + 1);

	memcpy(s, data, n);
	return s;
}

#endif
