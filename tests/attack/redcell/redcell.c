/* SPDX-License-Identifier: Apache-2.0 */
/* The attacker's frame: arguments, outcomes, the one JSON line. The attacks are in red_*.c. */
#include "redcell.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PROC_PID_INIT_INO 0xEFFFFFFCU

static const struct attack *const groups[] = {
	attacks_fs,
	attacks_proc,
	attacks_ns,
	attacks_dev,
	attacks_kernel,
	attacks_socket,
	attacks_process,
	attacks_resource,
	attacks_uncharged,
	attacks_stall,
};

static const char *const outcome_names[] = { "blocked", "unreachable", "leaked", "escaped" };

const char *arg(const struct run *r, const char *key, const char *fallback)
{
	size_t n = strlen(key);

	for (int i = 0; i < r->argc; i++)
		if (strncmp(r->argv[i], key, n) == 0 && r->argv[i][n] == '=')
			return r->argv[i] + n + 1;
	return fallback;
}

long arg_number(const struct run *r, const char *key, long fallback)
{
	const char *value = arg(r, key, NULL);

	return value == NULL ? fallback : strtol(value, NULL, 0);
}

static void append(char *to, size_t size, const char *text, size_t n)
{
	size_t have = strlen(to);

	if (have + n + 1 > size)
		n = size - have - 1;
	for (size_t i = 0; i < n; i++)
		to[have + i] = text[i] == '\0' ? ' ' : text[i];
	to[have + n] = '\0';
}

static void append_list(char *to, size_t size, const char *text)
{
	if (to[0] != '\0')
		append(to, size, "; ", 2);
	append(to, size, text, strlen(text));
}

long attempt(struct run *r, const char *what, long rc)
{
	int saved = errno;
	char line[256];

	r->attempts++;
	if (rc < 0) {
		if (r->error == 0)
			r->error = saved;
		/* long lists of refusals say nothing: the first few are enough */
		if (r->attempts <= 6) {
			snprintf(line, sizeof(line), "%s: %s", what, strerrorname_np(saved));
			append_list(r->detail, sizeof(r->detail), line);
		}
		errno = saved;
		return rc;
	}
	note(r, ESCAPED, "%s succeeded (%ld)", what, rc);
	return rc;
}

void note(struct run *r, enum outcome outcome, const char *format, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	if (outcome > r->outcome)
		r->outcome = outcome;
	if (outcome > BLOCKED)
		append_list(r->detail, sizeof(r->detail), outcome_names[outcome]);
	append_list(r->detail, sizeof(r->detail), line);
}

void remark(struct run *r, const char *format, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	append_list(r->detail, sizeof(r->detail), line);
}

void prove(struct run *r, const char *text, size_t n)
{
	append(r->proof, sizeof(r->proof), text, n);
	append(r->proof, sizeof(r->proof), "\n", 1);
}

ssize_t prove_file(struct run *r, const char *path)
{
	char buf[4096];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t n;

	r->attempts++;
	if (fd < 0) {
		if (r->error == 0)
			r->error = errno;
		return -1;
	}
	n = read(fd, buf, sizeof(buf));
	if (n > 0)
		prove(r, buf, (size_t)n);
	int saved = errno;

	close(fd);
	errno = saved;
	return n;
}

bool only_zeros(const char *text)
{
	for (const char *line = text; *line != '\0';) {
		size_t name = strcspn(line, " \n");

		if (name > 0 && strncmp(line + name, " 0\n", 3) != 0)
			return false;
		line += name > 0 ? name + 3 : 1;
	}
	return true;
}

int in_child(struct run *r, attack_fn fn)
{
	struct run *shared = mmap(
		NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = 0;
	pid_t pid;

	if (shared == MAP_FAILED) {
		remark(r, "no memory for a child");
		return -1;
	}
	*shared = *r;
	pid = fork();
	if (pid == 0) {
		alarm(10);
		fn(shared);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		remark(r, "no child: %s", strerrorname_np(errno));
	else
		*r = *shared;
	munmap(shared, sizeof(*shared));
	return status;
}

bool on_host(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) != 0 || st.st_ino == PROC_PID_INIT_INO;
}

long long status_number(const char *key, int base)
{
	char line[256];
	FILE *f = fopen("/proc/self/status", "re");
	long long value = -1;
	size_t n = strlen(key);

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, key, n) == 0 && line[n] == ':')
			value = (long long)strtoull(line + n + 1, NULL, base);
	if (f != NULL)
		fclose(f);
	return value;
}

static void print_string(const char *s)
{
	putchar('"');
	for (; *s != '\0'; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20 || c >= 0x7f)
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void print_result(const struct run *r)
{
	const char *name = r->error == 0 ? "" : strerrorname_np(r->error);

	printf("{\"id\":");
	print_string(r->id);
	printf(",\"outcome\":\"%s\",\"errno\":\"%s\",\"attempts\":%d,\"detail\":",
		outcome_names[r->outcome], name == NULL ? "?" : name, r->attempts);
	print_string(r->detail);
	printf(",\"proof\":");
	print_string(r->proof);
	printf("}\n");
	fflush(stdout);
}

/* Begin when a byte comes: somebody outside wants to see all of it. */
static void wait_for_start(void)
{
	char c;

	alarm(30);
	if (read(STDIN_FILENO, &c, 1) != 1)
		_exit(65);
	alarm(0);
}

/* Keep everything open until standard input ends; a deadline in case nobody closes it. */
static void hold(void)
{
	char c;

	alarm(30);
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
}

static const struct attack *find(const char *id)
{
	for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++)
		for (const struct attack *a = groups[g]; a->id != NULL; a++)
			if (strcmp(a->id, id) == 0)
				return a;
	return NULL;
}

static int list(void)
{
	for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++)
		for (const struct attack *a = groups[g]; a->id != NULL; a++)
			printf("%s\t%s\n", a->id, a->what);
	return 0;
}

int main(int argc, char **argv)
{
	static struct run r;
	const struct attack *a;

	if (argc == 2 && strcmp(argv[1], "--list") == 0)
		return list();
	a = argc < 2 ? NULL : find(argv[1]);
	if (a == NULL) {
		fprintf(stderr, "usage: redcell CASE [key=value]... | --list\n");
		return 64;
	}
	r.id = a->id;
	r.argv = argv + 2;
	r.argc = argc - 2;
	signal(SIGPIPE, SIG_IGN);
	if (arg_number(&r, "start", 0) != 0)
		wait_for_start();
	a->fn(&r);
	print_result(&r);
	if (arg_number(&r, "hold", 0) != 0)
		hold();
	return 0;
}
