/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/unlisted.h"
#include "base/clock.h"
#include "base/str.h"
#include "sandbox/listings.h"
#include "sys/raw.h"

#include <dirent.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 1000
#define SPENT_NS \
	(200 * NS_PER_MS) /* of processor time: what was found until then is what there is */
#define NOTED_NS             (100 * NS_PER_MS) /* for finding directories, however busy the machine is */
#define COUNTED_NS           (150 * NS_PER_MS) /* and for counting what they hold */
#define DIRECTORIES_MS       300
#define END_MS               100
#define UNLISTED_SOCKETS     1U
#define UNLISTED_DIRECTORIES 2U
#define SEEN_MAX             8192 /* sockets that hold something */
#define MANY                 64   /* descriptors */

/** struct walk - through the descriptors: of the process that looks. */
struct walk {
	void (*add)(
		struct walk *w, int fds, const char *name); /* one of them; @fds: /proc/PID/fd */
	struct holders sockets;
	struct listings listings;
	const struct cgroup *cg;
	uint64_t group;
	clockid_t clock;
	uint64_t until_ns;            /* by that clock */
	unsigned long seen[SEEN_MAX]; /* their inode numbers */
	size_t n_seen;
	int32_t pid;
	int pidfd;
};

static int number_of(int fd, int level, int option)
{
	int value = 0;
	socklen_t n = sizeof(value);

	return getsockopt(fd, level, option, &value, &n) == 0 ? value : -1;
}

/* Of TCP and UDP: is it in none of the kernel's tables? */
static bool is_unlisted(int fd)
{
	const int protocol = number_of(fd, SOL_SOCKET, SO_PROTOCOL);
	struct sockaddr_in6 at = { 0 };
	struct tcp_info info = { 0 };
	socklen_t n = protocol == IPPROTO_TCP ? sizeof(info) : sizeof(at);

	if (protocol == IPPROTO_TCP)
		return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0 &&
		       info.tcpi_state == TCP_CLOSE;
	/* the port is where it is in an address of version 4 */
	return protocol == IPPROTO_UDP && getsockname(fd, (struct sockaddr *)&at, &n) == 0 &&
	       at.sin6_port == 0;
}

static uint64_t held_by(int fd)
{
	uint32_t said[SK_MEMINFO_VARS] = { 0 };
	socklen_t n = sizeof(said);

	if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, said, &n) < 0)
		return 0;
	return (uint64_t)said[SK_MEMINFO_RMEM_ALLOC] + said[SK_MEMINFO_FWD_ALLOC] +
	       said[SK_MEMINFO_WMEM_QUEUED];
}

static bool is_new(struct walk *w, unsigned long inode)
{
	for (size_t i = 0; i < w->n_seen; i++) {
		if (w->seen[i] == inode)
			return false;
	}
	if (w->n_seen == SEEN_MAX)
		return false;
	w->seen[w->n_seen++] = inode;
	return true;
}

static void add_socket(struct walk *w, int fds, const char *name)
{
	char target[32] = "";
	unsigned long inode;
	cleanup_fd int fd = -1;
	uint64_t bytes, number;

	if (str_to_u64(name, 0, INT32_MAX, &number) < 0 ||
		readlinkat(fds, name, target, sizeof(target) - 1) < 0 ||
		sscanf(target, "socket:[%lu]", &inode) != 1)
		return;
	fd = raw_pidfd_getfd(w->pidfd, (int)number);
	bytes = fd >= 0 && is_unlisted(fd) ? held_by(fd) : 0;
	if (bytes > 0 && is_new(w, inode))
		holders_add(&w->sockets, w->group, bytes);
}

static void note_directory(struct walk *w, int fds, const char *name)
{
	char target[2] = "";

	if (readlinkat(fds, name, target, 1) == 1 && target[0] == '/')
		listings_note(&w->listings, w->pid, fds, name, w->group);
}

/* Return: 1 = there is no time left. */
static int add_process(struct walk *w, int32_t pid)
{
	cleanup_fd int pidfd = raw_pidfd_open(pid);
	const struct dirent *e;
	char path[32];
	DIR *dir;
	int rc = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = pidfd < 0 ? NULL : opendir(path);
	w->pidfd = pidfd;
	w->pid = pid;
	while (dir != NULL && rc == 0 && (e = readdir(dir)) != NULL) {
		w->add(w, dirfd(dir), e->d_name);
		rc = clock_read_ns(w->clock) > w->until_ns;
	}
	if (dir != NULL)
		(void)closedir(dir);
	return rc;
}

static int add_leaf(void *ctx, const char *name, const int32_t *pids, size_t n)
{
	struct walk *w = ctx;
	int rc = 0;

	w->group = unlisted_group(w->cg, name);
	/* all have the same ones */
	if (n > 0 && w->listings.n_mounts == 0)
		listings_learn(&w->listings, pids[0]);
	if (n > 0 && str_eq(name, "init"))
		listings_began(&w->listings, pids[0]);
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = add_process(w, pids[i]);
	return rc;
}

/* Nothing of the keeper's may be held open longer than by itself: a close of ours can take for hours. */
bool unlisted_by_itself(int to, pid_t parent)
{
	return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 && getppid() == parent &&
	       dup2(to, STDIN_FILENO) >= 0 && raw_close_range(STDIN_FILENO + 1, ~0U, 0) == 0;
}

static void look(
	struct walk *w, clockid_t clock, uint64_t ns, void (*add)(struct walk *, int, const char *))
{
	w->add = add;
	w->clock = clock;
	w->until_ns = clock_read_ns(clock) + ns;
	(void)!cgroup_each_leaf(w->cg, add_leaf, w);
}

static bool say(const struct holders *found)
{
	return write(STDIN_FILENO, found, sizeof(*found)) == (ssize_t)sizeof(*found);
}

static attr_noreturn void look_and_say(
	const struct cgroup *cg, unsigned int at, int to, pid_t parent)
{
	static struct holders directories;
	static struct walk w;

	if (!unlisted_by_itself(to, parent))
		_exit(1);
	w.cg = cg;
	if (at & UNLISTED_SOCKETS) {
		look(&w, CLOCK_THREAD_CPUTIME_ID, SPENT_NS, add_socket);
		if (!say(&w.sockets))
			_exit(1);
	}
	if (at & UNLISTED_DIRECTORIES) {
		look(&w, CLOCK_MONOTONIC, NOTED_NS, note_directory);
		listings_add(&w.listings, &directories, w.until_ns + COUNTED_NS);
		(void)!say(&directories);
	}
	_exit(0);
}

static int hear(int from, int ms, struct holders *ret)
{
	struct pollfd p = { .fd = from, .events = POLLIN };

	if (poll(&p, 1, ms) <= 0)
		return -ETIMEDOUT;
	return read(from, ret, sizeof(*ret)) == (ssize_t)sizeof(*ret) ? 0 : -EIO;
}

/* One that hangs in a read of the disk, where directories are, ends behind it. Return: has it ended? */
static bool end(pid_t pid, bool directories)
{
	cleanup_fd int pidfd = raw_pidfd_open(pid);
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	(void)kill(pid, SIGKILL);
	if (pidfd >= 0 && directories)
		(void)poll(&p, 1, END_MS);
	return waitpid(pid, NULL, directories ? WNOHANG : 0) != 0;
}

int unlisted_ask(const struct cgroup *cg, struct holders *sockets, struct holders *directories)
{
	static pid_t late; /* it was told to end, and has not */
	const pid_t keeper = getpid();
	struct holders found;
	unsigned int at = sockets != NULL ? UNLISTED_SOCKETS : 0;
	int ends[2], rc;
	pid_t pid;

	if (late != 0 && waitpid(late, NULL, WNOHANG) != 0)
		late = 0;
	at |= late == 0 ? UNLISTED_DIRECTORIES : 0;
	if (at == 0)
		return 0;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		look_and_say(cg, at, ends[1], keeper);
	rc = pid < 0 ? -errno : 0;
	(void)close(ends[1]);
	if (rc == 0 && sockets != NULL && (rc = hear(ends[0], WAIT_MS, &found)) == 0)
		holders_add_all(sockets, &found);
	if (rc == 0 && (at & UNLISTED_DIRECTORIES) && hear(ends[0], DIRECTORIES_MS, &found) == 0)
		holders_add_all(directories, &found);
	(void)close(ends[0]);
	if (pid > 0 && !end(pid, at & UNLISTED_DIRECTORIES))
		late = pid;
	return rc;
}

static int count_descriptors(void *ctx, attr_unused const char *name, const int32_t *pids, size_t n)
{
	uint64_t *count = ctx;
	char path[32];
	struct stat st;

	for (size_t i = 0; i < n && *count < MANY; i++) {
		(void)snprintf(path, sizeof(path), "/proc/%d/fd", pids[i]);
		if (stat(path, &st) == 0)
			*count += st.st_size > 0 ? (uint64_t)st.st_size : MANY;
	}
	return *count >= MANY;
}

bool unlisted_many(const struct cgroup *cg)
{
	uint64_t count = 0;

	return cgroup_each_leaf(cg, count_descriptors, &count) > 0;
}

uint64_t unlisted_group(const struct cgroup *cg, const char *leaf)
{
	char path[CGROUP_PATH_SIZE];
	struct stat st;

	if (leaf[0] == '\0' ||
		snprintf(path, sizeof(path), "%s/%s", cg->box, leaf) >= (int)sizeof(path))
		return 0;
	return stat(path, &st) == 0 ? st.st_ino : 0;
}
