/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/nesting.h"

bool nesting_exceeds(const char *text, size_t n, size_t levels)
{
	bool in_string = false;
	size_t depth = 0;

	for (size_t i = 0; i < n; i++) {
		if (in_string) {
			if (text[i] == '\\')
				i++;
			else if (text[i] == '"')
				in_string = false;
		} else if (text[i] == '"') {
			in_string = true;
		} else if (text[i] == '{' || text[i] == '[') {
			if (++depth > levels)
				return true;
		} else if ((text[i] == '}' || text[i] == ']') && depth > 0) {
			depth--;
		}
	}
	return false;
}
