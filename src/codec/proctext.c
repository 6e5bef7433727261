/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/proctext.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits of @base; false when there is none or the number does not fit. */
static bool take_number(const char **at, const char *end, unsigned int base, uint64_t *ret)
{
	const char *p = *at;
	uint64_t n = 0;

	for (; p < end; p++) {
		unsigned int digit;

		if (*p >= '0' && *p <= '9')
			digit = (unsigned int)(*p - '0');
		else if (*p >= 'a' && *p <= 'f')
			digit = (unsigned int)(*p - 'a' + 10);
		else
			break;
		if (digit >= base)
			break;
		if (__builtin_mul_overflow(n, base, &n) || __builtin_add_overflow(n, digit, &n))
			return false;
	}
	if (p == *at)
		return false;
	*at = p;
	*ret = n;
	return true;
}

static bool take_char(const char **at, const char *end, char c)
{
	if (*at >= end || **at != c)
		return false;
	++*at;
	return true;
}

static bool take_permissions(const char **at, const char *end, struct proc_map *ret)
{
	const char *p = *at;

	if (end - p < 4)
		return false;
	ret->readable = p[0] == 'r';
	ret->writable = p[1] == 'w';
	ret->executable = p[2] == 'x';
	ret->shared = p[3] == 's';
	*at += 4;
	return true;
}

int proc_map_next(const char **at, const char *end, struct proc_map *ret)
{
	uint64_t major, minor;
	const char *p = *at, *line_end;

	if (p >= end)
		return 0;
	line_end = memchr(p, '\n', (size_t)(end - p));
	if (line_end == NULL)
		line_end = end;
	*ret = (struct proc_map){ 0 };
	if (!take_number(&p, line_end, 16, &ret->start) || !take_char(&p, line_end, '-') ||
		!take_number(&p, line_end, 16, &ret->end) || !take_char(&p, line_end, ' ') ||
		!take_permissions(&p, line_end, ret) || !take_char(&p, line_end, ' ') ||
		!take_number(&p, line_end, 16, &ret->offset) || !take_char(&p, line_end, ' ') ||
		!take_number(&p, line_end, 16, &major) || !take_char(&p, line_end, ':') ||
		!take_number(&p, line_end, 16, &minor) || !take_char(&p, line_end, ' ') ||
		!take_number(&p, line_end, 10, &ret->inode) || ret->end <= ret->start)
		return -EINVAL;
	while (p < line_end && *p == ' ')
		p++;
	ret->major = (unsigned int)major;
	ret->minor = (unsigned int)minor;
	ret->name = p;
	ret->name_size = (size_t)(line_end - p);
	*at = line_end < end ? line_end + 1 : end;
	return 1;
}

/* Is the line of @n bytes one of @key, with another number than 0? */
static bool tells_some(const char *line, size_t n, const char *key)
{
	size_t size = strlen(key);

	if (n <= size || memcmp(line, key, size) != 0)
		return false;
	while (size < n && line[size] == ' ')
		size++;
	return size < n && line[size] != '0';
}

int proc_smap_next(const char **at, const char *end, struct proc_smap *ret)
{
	static const char key[] = "VmFlags:";
	struct proc_map head;
	bool own = false;
	int rc = proc_map_next(at, end, &head);

	if (rc <= 0)
		return rc;
	while (*at < end) {
		const char *line = *at, *line_end = memchr(line, '\n', (size_t)(end - line));
		size_t n = (size_t)((line_end == NULL ? end : line_end) - line);

		*at = line + n + (line_end == NULL ? 0 : 1);
		own = own || tells_some(line, n, "Anonymous:") || tells_some(line, n, "Swap:") ||
		      tells_some(line, n, "Private_Hugetlb:");
		if (n < sizeof(key) - 1 || memcmp(line, key, sizeof(key) - 1) != 0)
			continue;
		*ret = (struct proc_smap){ .start = head.start,
			.end = head.end,
			.flags = line + sizeof(key) - 1,
			.flags_size = n - (sizeof(key) - 1),
			.own = own };
		return 1;
	}
	return -EINVAL;
}

bool proc_smap_has(const struct proc_smap *m, const char *flag)
{
	for (size_t i = 0; i + 2 < m->flags_size; i++) {
		if (m->flags[i] == ' ' && memcmp(m->flags + i + 1, flag, 2) == 0 &&
			(i + 3 == m->flags_size || m->flags[i + 3] == ' '))
			return true;
	}
	return false;
}

int proc_stat_parse(const char *text, struct proc_stat *ret)
{
	/* the name may hold anything, also ')' */
	const char *name = strchr(text, '('), *p = strrchr(text, ')');
	long long f[53] = { 0 };
	size_t name_n;
	char state;
	int used = 0;

	if (name == NULL || p == NULL || p < name || sscanf(p, ") %c%n", &state, &used) != 1 ||
		used == 0)
		return -EINVAL;
	name_n = (size_t)(p - name) - 1;
	p += used;
	for (int i = 4; i <= 52; i++) {
		char *end;

		errno = 0;
		f[i] = *p == ' ' && p[1] == '-' ? strtoll(p, &end, 10)
						: (long long)strtoull(p, &end, 10);
		if (end == p || errno != 0)
			return -EINVAL;
		p = end;
	}
	*ret = (struct proc_stat){ .state = state,
		.ppid = (int)f[4],
		.group = (int)f[5],
		.session = (int)f[6],
		.terminal = (int)f[7],
		.terminal_group = (int)f[8],
		.flags = (unsigned long long)f[9],
		.user_time = (unsigned long long)f[14],
		.system_time = (unsigned long long)f[15],
		.nice = f[19],
		.started = (unsigned long long)f[22],
		.start_code = (unsigned long long)f[26],
		.end_code = (unsigned long long)f[27],
		.start_stack = (unsigned long long)f[28],
		.start_data = (unsigned long long)f[45],
		.end_data = (unsigned long long)f[46],
		.start_brk = (unsigned long long)f[47],
		.arg_start = (unsigned long long)f[48],
		.arg_end = (unsigned long long)f[49],
		.env_start = (unsigned long long)f[50],
		.env_end = (unsigned long long)f[51],
		.exit_signal = (int)f[38],
		.exit_code = (int)f[52] };
	memcpy(ret->name, name + 1, name_n < sizeof(ret->name) ? name_n : sizeof(ret->name) - 1);
	return 0;
}

const char *proc_value(const char *text, const char *key)
{
	size_t n = strlen(key);

	for (const char *line = text; line != NULL && *line != '\0';
		line = strchr(line, '\n'), line = line != NULL ? line + 1 : NULL) {
		if (strncmp(line, key, n) != 0 || line[n] != ':')
			continue;
		line += n + 1;
		return line + strspn(line, " \t");
	}
	return NULL;
}

size_t proc_numbers(const char *text, const char *key, int base, uint64_t *ret, size_t max)
{
	const char *p = proc_value(text, key), *end;
	size_t n = 0;

	if (p == NULL)
		return 0;
	end = p + strcspn(p, "\n");
	while (n < max && take_number(&p, end, (unsigned int)base, &ret[n])) {
		n++;
		while (p < end && (*p == ' ' || *p == '\t'))
			p++;
	}
	return n;
}

uint64_t proc_number(const char *text, const char *key, int base, uint64_t otherwise)
{
	uint64_t n;

	return proc_numbers(text, key, base, &n, 1) == 1 ? n : otherwise;
}

static enum proc_lock_kind lock_kind(const char *word)
{
	return strcmp(word, "POSIX") == 0    ? PROC_LOCK_POSIX
	       : strcmp(word, "FLOCK") == 0  ? PROC_LOCK_FLOCK
	       : strcmp(word, "OFDLCK") == 0 ? PROC_LOCK_OFD
					     : PROC_LOCK_OTHER;
}

int proc_lock_next(const char **at, struct proc_lock *ret)
{
	const char *line = proc_value(*at, "lock");
	char kind[8], access[8], end[24];
	unsigned long long start, last;
	int pid;

	if (line == NULL)
		return 0;
	*at = line + strcspn(line, "\n");
	*at += **at == '\n';
	/* 1: POSIX  ADVISORY  WRITE 1234 fd:01:5678 0 EOF */
	if (sscanf(line, "%*19[0-9]: %7s %*15s %7s %d %*63s %llu %23s", kind, access, &pid, &start,
		    end) != 5 ||
		line >= *at)
		return -EINVAL;
	*ret = (struct proc_lock){ .kind = lock_kind(kind),
		.exclusive = strcmp(access, "WRITE") == 0,
		.pid = pid,
		.start = start };
	if (strcmp(end, "EOF") == 0)
		return 1;
	if (sscanf(end, "%llu", &last) != 1 || last < start)
		return -EINVAL;
	ret->length = last - start + 1;
	return 1;
}
