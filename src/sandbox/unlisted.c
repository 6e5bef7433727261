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
#define SEEN_MAX 8192     /* sockets that hold something */
#define MANY     64       /* descriptors */

/** struct found - what the process that looks says. */
struct found {
	struct holders sockets, directories;
};

/** struct walk - through the descriptors: of the process that looks. */
struct walk {
	void (*add)(
		struct walk *w, int fds, const char *name); /* one of them; @fds: /proc/PID/fd */
	struct found *found;
	struct listings listings;
	const struct cgroup *cg;
	uint64_t group;
	uint64_t until_ns;            /* of its processor time */
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
		holders_add(&w->found->sockets, w->group, bytes);
}

static void add_directory(struct walk *w, int fds, const char *name)
{
	char target[2] = "";

	if (readlinkat(fds, name, target, 1) == 1 && target[0] == '/')
		holders_add(
			&w->found->directories, w->group, listings_bytes(&w->listings, fds, name));
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
	while (dir != NULL && rc == 0 && (e = readdir(dir)) != NULL) {
		w->add(w, dirfd(dir), e->d_name);
		rc = clock_thread_ns() > w->until_ns;
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
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = add_process(w, pids[i]);
	return rc;
}

/* Nothing of the keeper's may be held open longer than by itself: a close of ours can take for hours. */
static bool is_by_itself(int to, pid_t parent)
{
	return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 && getppid() == parent &&
	       dup2(to, STDIN_FILENO) >= 0 && raw_close_range(STDIN_FILENO + 1, ~0U, 0) == 0;
}

static void look(struct walk *w, void (*add)(struct walk *, int, const char *))
{
	w->add = add;
	w->until_ns = clock_thread_ns() + SPENT_NS;
	(void)!cgroup_each_leaf(w->cg, add_leaf, w);
}

static attr_noreturn void look_and_say(const struct cgroup *cg, bool sockets, int to, pid_t parent)
{
	static struct found found;
	static struct walk w = { .found = &found };

	if (!is_by_itself(to, parent))
		_exit(1);
	w.cg = cg;
	if (sockets)
		look(&w, add_socket);
	look(&w, add_directory);
	_exit(write(STDIN_FILENO, &found, sizeof(found)) == (ssize_t)sizeof(found) ? 0 : 1);
}

static int hear(int from, struct found *ret)
{
	struct pollfd p = { .fd = from, .events = POLLIN };

	if (poll(&p, 1, WAIT_MS) <= 0)
		return -ETIMEDOUT;
	return read(from, ret, sizeof(*ret)) == (ssize_t)sizeof(*ret) ? 0 : -EIO;
}

int unlisted_ask(const struct cgroup *cg, struct holders *sockets, struct holders *directories)
{
	static struct found found;
	const pid_t keeper = getpid();
	int ends[2], rc;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		look_and_say(cg, sockets != NULL, ends[1], keeper);
	rc = pid < 0 ? -errno : 0;
	(void)close(ends[1]);
	if (rc == 0)
		rc = hear(ends[0], &found);
	(void)close(ends[0]);
	if (pid > 0 && kill(pid, SIGKILL) == 0)
		(void)waitpid(pid, NULL, 0);
	if (rc == 0 && sockets != NULL)
		holders_add_all(sockets, &found.sockets);
	if (rc == 0)
		holders_add_all(directories, &found.directories);
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
