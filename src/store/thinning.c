/* SPDX-License-Identifier: Apache-2.0 */
#include "store/thinning.h"

uint64_t thinning_stride(uint64_t age)
{
	uint64_t stride = 1;

	while (age / stride >= THINNING_ALL)
		stride *= 2;
	return stride;
}

void thinning_choose(const uint64_t *steps, size_t n, uint64_t newest, bool *keep)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t stride = thinning_stride(newest - steps[i]);

		keep[i] = i == 0 || steps[i - 1] / stride != steps[i] / stride;
	}
}
