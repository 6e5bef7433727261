/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"
#include "base/str.h"

#include <fcntl.h>
#include <signal.h>

#define FAULTS_MAX 4U

/* Append a line to the log, if there is one. Return: the log, which stands behind that line, or -1. */
static int note(const char *mark, const char *name)
{
	const char *path = getenv("CAY_FAULT_LOG");
	char line[128];
	int n = snprintf(line, sizeof(line), "%s%s\n", mark, name);
	int fd = path == NULL ? -1 : open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

	if (fd >= 0)
		(void)!write(fd, line, (size_t)n);
	return fd;
}

/* How many lines say @name, up to where @log stands: the one that this process has just written is the last of them, and no other process counts as many. */
static unsigned int passed(int log, const char *name)
{
	off_t end = lseek(log, 0, SEEK_CUR), at = 0;
	const char *same = name; /* what of it the line still has to say, or NULL: it is another */
	unsigned int found = 0;
	char text[4096];

	while (at < end) {
		size_t want = (size_t)(end - at);
		ssize_t n = pread(log, text, want < sizeof(text) ? want : sizeof(text), at);

		for (ssize_t i = 0; i < n; i++) {
			if (text[i] == '\n') {
				found += same != NULL && *same == '\0';
				same = name;
			} else {
				same = same != NULL && *same == text[i] ? same + 1 : NULL;
			}
		}
		if (n <= 0)
			break;
		at += n;
	}
	return found;
}

void fault_environment(char *env[FAULT_VARIABLES + 1])
{
	static const char *const names[FAULT_VARIABLES] = { "CAY_FAULT", "CAY_FAULT_LOG",
		"CAY_WITHOUT" };
	size_t n = 0;

	for (size_t i = 0; i < FAULT_VARIABLES; i++) {
		const char *value = getenv(names[i]);

		/* the text of the environment begins before the value */
		if (value != NULL)
			env[n++] = (char *)(uintptr_t)(value - strlen(names[i]) - 1);
	}
	env[n] = NULL;
}

/* What @spec, one of the list, says of @name: where its HIT or action begins, or NULL. */
static const char *told_of(const char *spec, const char *name)
{
	const char *rest = str_starts(spec, name) ? spec + strlen(name) : NULL;

	return rest != NULL && (*rest == '\0' || strchr(":=,", *rest) != NULL) ? rest : NULL;
}

static bool says(const char *rest, const char *action)
{
	size_t n = strlen(action);

	return strncmp(rest, action, n) == 0 && (rest[n] == '\0' || rest[n] == ',');
}

/* Do at hit @hits of @name what @rest tells, if it is the one that it means. */
static int act(const char *name, const char *rest, unsigned int hits)
{
	unsigned int want = 1;
	bool on = false;
	cleanup_fd int log = -1;

	if (*rest == ':') {
		want = 0;
		for (rest++; *rest >= '0' && *rest <= '9'; rest++)
			want = want * 10 + (unsigned int)(*rest - '0');
	}
	if (*rest == '+') {
		on = true;
		rest++;
	}
	if (hits < want || (hits > want && !on))
		return 0;
	log = note("!", name);
	if (says(rest, "=error"))
		return -EIO;
	if (says(rest, "=hold"))
		return kill(getpid(), SIGSTOP);
	(void)kill(getpid(), SIGKILL);
	return -EIO;
}

int fault(const char *name)
{
	static int state; /* 0 = not looked at, 1 = off, 2 = on */
	static unsigned int hits[FAULTS_MAX];
	const char *spec, *rest;
	cleanup_fd int log = -1;

	if (state == 1)
		return 0;
	spec = getenv("CAY_FAULT");
	if (state == 0)
		state = spec != NULL || getenv("CAY_FAULT_LOG") != NULL ? 2 : 1;
	if (state == 1)
		return 0;
	log = note("", name);
	for (unsigned int i = 0; spec != NULL && i < FAULTS_MAX; i++) {
		rest = told_of(spec, name);
		if (rest != NULL)
			return act(name, rest, log < 0 ? ++hits[i] : passed(log, name));
		spec = strchr(spec, ',');
		spec = spec != NULL ? spec + 1 : NULL;
	}
	return 0;
}

bool fault_at(const char *prefix)
{
	const char *spec = getenv("CAY_FAULT");

	while (spec != NULL && !str_starts(spec, prefix)) {
		spec = strchr(spec, ',');
		spec = spec != NULL ? spec + 1 : NULL;
	}
	return spec != NULL;
}
