/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/parameter.h"
#include "base/str.h"

void parameter_name(const char *p, size_t n, char *out)
{
	for (size_t i = 0; i < n; i++) {
		int high = p[i] == '%' && i + 2 < n ? str_hex_digit(p[i + 1]) : -1;
		int low = high >= 0 ? str_hex_digit(p[i + 2]) : -1;

		if (low >= 0) {
			*out++ = (char)(high << 4 | low);
			i += 2;
		} else {
			*out++ = p[i] == '+' ? ' ' : p[i];
		}
	}
	*out = '\0';
}

/* What PHP makes of a byte of a parameter's name. */
static char fold(char c)
{
	return c == '.' || c == ' ' || c == '[' ? '_'
	       : c >= 'A' && c <= 'Z'           ? (char)(c - 'A' + 'a')
						: c;
}

static bool begins_with(const char *name, const char *want)
{
	size_t n = strlen(want);

	for (size_t i = 0; i < n; i++)
		if (fold(name[i]) != fold(want[i]))
			return false;
	return name[n] == '\0' || name[n] == '[' || name[n] == ']';
}

bool parameter_is(const char *name, const char *want)
{
	if (*want != ' ')
		name += strspn(name, " ");
	return begins_with(name, want) || begins_with(name + strspn(name, "[]"), want);
}
