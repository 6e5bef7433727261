/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/recordlocks.h"
#include "base/clock.h"
#include "base/str.h"
#include "codec/proctext.h"
#include "sandbox/unlisted.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOCK_BYTES 192              /* the kernel's, for each at least */
#define SPENT_NS   (20 * NS_PER_S)  /* of processor time: some five million locks */
#define WAIT_NS    (120 * NS_PER_S) /* until it is ended */
#define KNOWN_MAX  (1U << 16)
#define STAT_MAX   4096
#define OWNED      ": POSIX "
#define DESCRIBED  ": OFDLCK "

/** struct known - a table of descriptors, or a description, by a process that has it. */
struct known {
	int32_t pid;
	uint32_t fd;
};

/** struct order - each once, by the kernel's order. */
struct order {
	int type; /* of kcmp(2) */
	size_t n;
	struct known all[KNOWN_MAX];
};

/** struct count - of the process that counts. */
struct count {
	const struct cgroup *cg;
	uint64_t enough;
	uint64_t until_ns; /* of processor time */
	uint64_t read_ns;  /* CLOCK_BOOTTIME, before the numbers of processes were read */
	uint64_t group;
	int32_t pid;
	struct holders found;
	struct order tables, described;
	struct order own; /* descriptions that the process has */
};

static int compare(const struct order *o, const struct known *a, const struct known *b)
{
	return raw_kcmp(a->pid, b->pid, o->type, a->fd, b->fd);
}

/* Those that are met and there no more are forgotten. Return: it is another one than all before. */
static bool is_new(struct order *o, const struct known *one)
{
	size_t low = 0, high = o->n;

	while (low < high) {
		const size_t middle = (low + high) / 2;
		const struct known *other = &o->all[middle];
		const int order = compare(o, one, other);

		if (order == 1) {
			high = middle;
		} else if (order == 2) {
			low = middle + 1;
		} else if (order >= 0 || compare(o, one, one) != 0 ||
			   compare(o, other, other) == 0) {
			return false;
		} else {
			memmove(&o->all[middle], &o->all[middle + 1],
				(--o->n - middle) * sizeof(o->all[0]));
			high--;
		}
	}
	if (o->n == KNOWN_MAX)
		return false;
	memmove(&o->all[low + 1], &o->all[low], (o->n++ - low) * sizeof(o->all[0]));
	o->all[low] = *one;
	return true;
}

/* The kernel shows on a descriptor what was locked by its description: @owned: by that process; @described: by whoever had it. */
static void count_lines(int infos, const char *name, uint32_t *owned, uint32_t *described)
{
	int fd = openat(infos, name, O_RDONLY | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "re");
	cleanup_free char *line = NULL;
	size_t size = 0;

	while (f != NULL && getline(&line, &size, f) > 0) {
		/* lock:	1: POSIX …; of a million only this word is looked at */
		const char *kind = strncmp(line, "lock:", 5) == 0 ? strchr(line + 5, ':') : NULL;

		*owned += kind != NULL && strncmp(kind, OWNED, sizeof(OWNED) - 1) == 0;
		*described += kind != NULL && strncmp(kind, DESCRIBED, sizeof(DESCRIBED) - 1) == 0;
	}
	if (f != NULL)
		(void)fclose(f);
	else if (fd >= 0)
		(void)close(fd);
}

static void add_descriptor(struct count *c, int infos, const char *name)
{
	struct known one = { .pid = c->pid };
	uint32_t owned = 0, described = 0;
	uint64_t fd;

	if (str_to_u64(name, 0, INT32_MAX, &fd) < 0)
		return;
	one.fd = (uint32_t)fd;
	if (!is_new(&c->own, &one))
		return;
	count_lines(infos, name, &owned, &described);
	if (described > 0 && is_new(&c->described, &one))
		owned += described;
	holders_add(&c->found, c->group, (uint64_t)owned * LOCK_BYTES);
}

/* Not one that has got the number of one that has ended since it was read. */
static bool was_there(const struct count *c, int proc)
{
	cleanup_buf struct buf text = BUF_INIT(STAT_MAX);
	const uint64_t tick_ns = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
	struct proc_stat stat;

	return file_read_at(proc, "stat", &text) == 0 &&
	       proc_stat_parse(buf_cstr(&text), &stat) == 0 &&
	       (stat.started + 1) * tick_ns < c->read_ns;
}

/* Return: 1 = there is no more to be counted. */
static int add_process(struct count *c, int32_t pid)
{
	cleanup_fd int proc = -1;
	const struct dirent *e;
	char path[32];
	DIR *infos;
	int fd, rc = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d", pid);
	proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	c->pid = pid;
	c->own.n = 0;
	/* who shares its descriptors with another process has the same locks */
	if (proc < 0 || !was_there(c, proc) || !is_new(&c->tables, &(struct known){ .pid = pid }))
		return 0;
	fd = openat(proc, "fdinfo", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	infos = fd < 0 ? NULL : fdopendir(fd);
	while (infos != NULL && rc == 0 && (e = readdir(infos)) != NULL) {
		add_descriptor(c, dirfd(infos), e->d_name);
		rc = c->found.bytes > c->enough || clock_thread_ns() > c->until_ns;
	}
	if (infos != NULL)
		(void)closedir(infos);
	else if (fd >= 0)
		(void)close(fd);
	return rc;
}

static int add_leaf(void *ctx, const char *name, const int32_t *pids, size_t n)
{
	struct count *c = ctx;
	int rc = 0;

	c->group = unlisted_group(c->cg, name);
	/* a group that is gone has nobody left */
	for (size_t i = 0; c->group != 0 && i < n && rc == 0; i++)
		rc = add_process(c, pids[i]);
	c->read_ns = clock_boot_ns();
	return rc;
}

static attr_noreturn void count_and_say(
	const struct cgroup *cg, uint64_t enough, int to, pid_t parent)
{
	static struct count c;

	if (!unlisted_by_itself(to, parent))
		_exit(1);
	c.cg = cg;
	c.enough = enough;
	c.until_ns = clock_thread_ns() + SPENT_NS;
	c.read_ns = clock_boot_ns();
	c.tables.type = KCMP_FILES;
	c.described.type = c.own.type = KCMP_FILE;
	(void)!cgroup_each_leaf(cg, add_leaf, &c);
	_exit(write(STDIN_FILENO, &c.found, sizeof(c.found)) != (ssize_t)sizeof(c.found));
}

static int begin(const struct cgroup *cg, uint64_t enough, pid_t *pid)
{
	struct clone_args args = { 0 };
	const pid_t keeper = getpid();
	int ends[2], rc;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	/* not among those whose end is that of a program (keeper_reap_children()) */
	*pid = raw_clone3(&args);
	if (*pid == 0)
		count_and_say(cg, enough, ends[1], keeper);
	rc = *pid < 0 ? *pid : ends[0];
	(void)close(ends[1]);
	if (rc < 0)
		(void)close(ends[0]);
	return rc;
}

int recordlocks_ask(const struct cgroup *cg, uint64_t enough, struct holders *ret)
{
	static int from = -1; /* who counts */
	static uint64_t until_ns;
	static pid_t pid; /* also behind that, until it has ended */
	struct pollfd p = { .events = POLLIN };
	struct holders found;
	bool late; /* what was held so long ago is no reason */
	int rc;

	if (from < 0) {
		/* one that was told to end and hangs in what it looks at: there is no second one */
		if (pid > 0 && waitpid(pid, NULL, (int)__WCLONE | WNOHANG) == 0)
			return 0;
		pid = 0;
		from = begin(cg, enough, &pid);
		until_ns = clock_now_ns() + WAIT_NS;
		return from < 0 ? from : -EAGAIN;
	}
	p.fd = from;
	rc = poll(&p, 1, 0);
	late = clock_now_ns() >= until_ns;
	if (rc == 0 && !late)
		return -EAGAIN;
	if (rc == 0)
		(void)kill(pid, SIGKILL);
	else if (!late && read(from, &found, sizeof(found)) == (ssize_t)sizeof(found))
		holders_add_all(ret, &found);
	(void)close(from);
	from = -1;
	if (waitpid(pid, NULL, (int)__WCLONE | (rc == 0 ? WNOHANG : 0)) != 0)
		pid = 0;
	return 0;
}
