/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/fuzz.h"
#include "sandbox/account.h"

#define ID_MAX 65534U

/* Three lines of text that end with NUL: who is asked for, /etc/passwd, /etc/group. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *user = (const char *)data, *end = (const char *)data + size;
	cleanup_free char *name = fuzz_text(data, size), *passwd = NULL, *group = NULL;
	size_t n = strlen(name);
	struct account a;
	struct err err;

	user += n < size ? n + 1 : n;
	passwd = fuzz_text((const uint8_t *)user, (size_t)(end - user));
	n = strlen(passwd);
	user += n < (size_t)(end - user) ? n + 1 : n;
	group = fuzz_text((const uint8_t *)user, (size_t)(end - user));
	if (account_among(name, passwd, group, &a, &err) < 0) {
		MUST(err.code == ERR_BAD_USER);
		return 0;
	}
	MUST(a.uid <= ID_MAX && a.gid <= ID_MAX && a.n_groups <= ACCOUNT_GROUPS_MAX);
	MUST(strnlen(a.name, sizeof(a.name)) < sizeof(a.name) &&
		strnlen(a.home, sizeof(a.home)) < sizeof(a.home));
	for (size_t i = 0; i < a.n_groups; i++) {
		MUST(a.groups[i] <= ID_MAX);
		for (size_t j = 0; j < i; j++)
			MUST(a.groups[i] != a.groups[j]);
	}
	return 0;
}
