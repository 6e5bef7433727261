/* SPDX-License-Identifier: Apache-2.0 */
#include "base/subids.h"
#include "base/str.h"

#define FIRST_LENT 524288U

struct range {
	char owner[256];
	uint64_t first, count; /* both 0: the line says none */
};

/* The line at @at. Return: the next one, or NULL behind the last. */
static const char *next(const char *at, struct range *r)
{
	size_t n = strcspn(at, "\n");
	char line[512];

	if (*at == '\0')
		return NULL;
	(void)snprintf(line, sizeof(line), "%.*s", (int)(n < sizeof(line) ? n : sizeof(line)), at);
	if (sscanf(line, "%255[^:]:%lu:%lu", r->owner, &r->first, &r->count) != 3 ||
		r->first > UINT32_MAX || r->count > UINT32_MAX)
		*r = (struct range){ 0 };
	return at + n + (at[n] != '\0');
}

uint32_t subids_find(const char *text, const char *name, uid_t uid, uint64_t *ret_largest)
{
	uint64_t largest = 0, found = 0;
	char number[16];
	struct range r;

	(void)snprintf(number, sizeof(number), "%u", uid);
	for (const char *at = text; (at = next(at, &r)) != NULL;) {
		if (r.first == 0 || (!str_eq(r.owner, name) && !str_eq(r.owner, number)))
			continue;
		largest = r.count > largest ? r.count : largest;
		if (found == 0 && r.count >= SUBIDS_NEEDED)
			found = r.first;
	}
	if (ret_largest != NULL)
		*ret_largest = largest;
	return (uint32_t)found;
}

/* Where a range of @text that has one of the SUBIDS_LENT ids from @first on ends, or 0. */
static uint64_t end_of_taken(const char *text, uint64_t first)
{
	struct range r;

	for (const char *at = text; (at = next(at, &r)) != NULL;) {
		if (r.count > 0 && r.first < first + SUBIDS_LENT && first < r.first + r.count)
			return r.first + r.count;
	}
	return 0;
}

uint64_t subids_free(const char *const *texts, size_t n)
{
	uint64_t first = FIRST_LENT, end;
	size_t i = 0;

	while (i < n) {
		end = end_of_taken(texts[i], first);
		if (end > 0)
			first = (end + SUBIDS_LENT - 1) / SUBIDS_LENT * SUBIDS_LENT;
		i = end > 0 ? 0 : i + 1;
	}
	return first;
}
