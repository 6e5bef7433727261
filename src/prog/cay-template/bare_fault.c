/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/bare_fault.c - named fault points for crash tests, without an environment: that goes with the kernel's stack. Every clone counts its own hits. The log of
 * points that were passed is out of reach of whoever has entered a sandbox: a test of those sees what its kill did.
 */
#include "prog/cay-template/bare.h"

#define SPEC_MAX   256
#define NAME_MAX   64
#define PATH_MAX   512
#define FAULTS_MAX 4 /* as in base/fault.c */

static char spec[SPEC_MAX], log[PATH_MAX];
static unsigned int hits[FAULTS_MAX];

static size_t copy(char *to, const char *from, size_t size)
{
	size_t n = 0;

	for (; from != NULL && from[n] != '\0' && n < size - 1; n++)
		to[n] = from[n];
	to[n] = '\0';
	return n;
}

void bare_fault_arm(const char *armed, const char *path)
{
	(void)copy(spec, armed, sizeof(spec));
	(void)copy(log, path, sizeof(log));
}

static void note_passed(const char *name)
{
	char line[NAME_MAX + 1];
	size_t n = copy(line, name, NAME_MAX);
	long fd = CALL3(__NR_open, log, 02001 | BARE_CLOEXEC, 0); /* WRONLY | APPEND */

	line[n] = '\n';
	if (fd < 0)
		return;
	(void)CALL3(__NR_write, fd, line, n + 1);
	(void)CALL1(__NR_close, fd);
}

/* What follows @name in the point at @at of the setting, or NULL when that is another one. */
static const char *rest_of(const char *at, const char *name)
{
	size_t n = 0;

	while (name[n] != '\0' && at[n] == name[n])
		n++;
	if (name[n] != '\0')
		return NULL;
	return at[n] == '\0' || at[n] == ':' || at[n] == '=' || at[n] == ',' ? at + n : NULL;
}

/* The same in the whole of it. @ret_which: number of the point. */
static const char *find(const char *name, unsigned int *ret_which)
{
	const char *at = spec;

	for (unsigned int i = 0; i < FAULTS_MAX && *at != '\0'; i++) {
		const char *rest = rest_of(at, name);

		*ret_which = i;
		if (rest != NULL)
			return rest;
		while (*at != '\0' && *at != ',')
			at++;
		at += *at == ',';
	}
	return NULL;
}

bool bare_fault_named(const char *name)
{
	unsigned int which;

	return find(name, &which) != NULL;
}

void bare_fault(const char *name)
{
	unsigned int which, want = 0;
	const char *rest;

	if (log[0] != '\0')
		note_passed(name);
	rest = find(name, &which);
	if (rest == NULL)
		return;
	for (; *rest == ':' || (*rest >= '0' && *rest <= '9'); rest++)
		want = *rest == ':' ? 0 : want * 10 + (unsigned int)(*rest - '0');
	if (++hits[which] == (want != 0 ? want : 1))
		(void)CALL2(__NR_kill, CALL0(__NR_getpid), *rest == '=' ? 19 /* =hold */ : 9);
}
