/* SPDX-License-Identifier: Apache-2.0 */
#include "store/import_start.h"
#include "base/ablate.h"
#include "base/str.h"
#include "store/store.h"
#include "sys/cred.h"
#include "sys/fdpass.h"
#include "sys/file.h"
#include "sys/mount.h"
#include "sys/raw.h"

#include <grp.h>
#include <limits.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define PROGRAM "cay-import"

/* Host ids of importers: the 65,536 below those of sandboxes (sandbox/box.c). They meet nobody: each is in a pid namespace of its own. */
#define IMPORT_FIRST_ID 0x3FFF0000U
#define IMPORT_IDS      65536U

#define JAIL_NAMESPACES \
	(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)

/* Everything the child needs, so that it allocates nothing. */
struct launch {
	int program, socket, archive;
	char *argv[3];
};

/* How many ids from 0 on a map of this process has. newuidmap writes the own id first and the subordinate range behind it. */
static uint32_t mapped(const char *path)
{
	cleanup_buf struct buf map = BUF_INIT(8192);
	unsigned long inside, outside, count;
	uint64_t end = 0;

	if (file_read_at(AT_FDCWD, path, &map) < 0)
		return 1;
	for (const char *p = buf_cstr(&map);
		sscanf(p, "%lu %lu %lu", &inside, &outside, &count) == 3;) {
		if (inside == end)
			end += count;
		p = strchr(p, '\n');
		if (p == NULL || *++p == '\0')
			break;
	}
	return end == 0 ? 1 : end < IMPORT_IDS ? (uint32_t)end : IMPORT_IDS;
}

uint32_t importer_ids(bool rootless)
{
	uint32_t uids = rootless ? mapped("/proc/self/uid_map") : IMPORT_IDS;
	uint32_t gids = rootless ? mapped("/proc/self/gid_map") : IMPORT_IDS;

	return uids < gids ? uids : gids;
}

/* ---- the child, until it is cay-import ----------------------------------------------------------------------------------------- */

static int place_fd(int from, int to)
{
	if (from < 0)
		return close(to) < 0 && errno != EBADF ? -errno : 0;
	return dup2(from, to) < 0 ? -errno : 0;
}

/* Put the descriptors at 3, 4, 5, by way of numbers above, so that none covers another. */
static int place_fds(const struct launch *l, int tree)
{
	int up[3] = { fcntl(tree, F_DUPFD_CLOEXEC, 16), fcntl(l->socket, F_DUPFD_CLOEXEC, 16),
		l->archive < 0 ? -1 : fcntl(l->archive, F_DUPFD_CLOEXEC, 16) };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), rc = 0;

	if (up[0] < 0 || up[1] < 0 || null < 0)
		return -errno;
	for (int i = 0; rc == 0 && i < 2; i++)
		rc = place_fd(null, i);
	for (int i = 0; rc == 0 && i < 3; i++)
		rc = place_fd(up[i], 3 + i);
	return rc;
}

static int become_importer(const struct launch *l)
{
	char *environment[] = { (char *)(uintptr_t) "LC_ALL=C", NULL, NULL };
	size_t n_fds = 0;
	int tree = -1, program, rc;
	char go;

	/* The maps are written and the tree is there when this arrives. */
	if (fdpass_recv(l->socket, &go, 1, &tree, 1, &n_fds) != 1 || n_fds != 1)
		return -EPIPE;
	/* Where only one id is mapped, setgroups is refused, and there is nothing to give up. */
	if ((setgroups(0, NULL) < 0 && errno != EPERM) || setresgid(0, 0, 0) < 0 ||
		setresuid(0, 0, 0) < 0)
		return -errno;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return -errno;
	program = fcntl(l->program, F_DUPFD_CLOEXEC, 16);
	rc = program < 0 ? -errno : place_fds(l, tree);
	if (rc < 0)
		return rc;
	environment[1] = ablate_environment();
	(void)syscall(SYS_execveat, program, "", l->argv, environment, AT_EMPTY_PATH);
	return -errno;
}

/* Say why on the socket; the job reads it like a report. */
static attr_noreturn void child(const struct launch *l)
{
	int rc = become_importer(l);
	char text[200];

	(void)snprintf(text, sizeof(text),
		"R{\"error\":{\"code\":\"internal\",\"message\":\"start cay-import: %s\",\"hint\":\"\",\"errno\":%d}}",
		strerrordesc_np(-rc), -rc);
	if (fdpass_send(l->socket, text, strlen(text), NULL, 0) < 0)
		_exit(2);
	_exit(1);
}

/* ---- the job -------------------------------------------------------------------------------------------------------------------- */

/* cay-import lies in @programs; without, beside our own executable. */
static int open_program(const char *programs)
{
	char own[PATH_MAX], path[PATH_MAX + sizeof(PROGRAM)];
	int rc = programs == NULL ? file_own_dir(own, sizeof(own)) : 0, fd;

	if (rc < 0)
		return rc;
	if (snprintf(path, sizeof(path), "%s/%s", programs != NULL ? programs : own, PROGRAM) >=
		(int)sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int map_ids(pid_t pid, bool rootless)
{
	cleanup_fd int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (proc < 0)
		return -errno;
	return rootless ? cred_map_identity(proc, pid)
			: cred_map_user_ns(proc, pid, 0, IMPORT_FIRST_ID, IMPORT_IDS);
}

/*
 * What the importer gets as its tree. Root mode: a detached mount through which its ids are 0..65535. Rootless: a plain one, or, where the job has no mount
 * namespace of its own, the directory, into which the importer then changes its root.
 */
static int open_tree_for(pid_t pid, int tree, bool rootless)
{
	cleanup_fd int mount = mount_clone_fd(tree, false), userns = -1;
	char path[40];
	int rc;

	if (rootless)
		return mount >= 0 ? TAKE_FD(mount) : raw_result(fcntl(tree, F_DUPFD_CLOEXEC, 3));
	if (mount < 0)
		return mount;
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	userns = open(path, O_RDONLY | O_CLOEXEC);
	if (userns < 0)
		return -errno;
	rc = mount_set_idmap(mount, userns);
	return rc < 0 ? rc : TAKE_FD(mount);
}

static int set_up(const struct importer *importer, int tree, bool rootless, struct err *err)
{
	cleanup_fd int mount = -1;
	int rc = map_ids(importer->pid, rootless);

	if (rc < 0)
		return err_raise_sys(err, rc, "give the importer its ids");
	mount = open_tree_for(importer->pid, tree, rootless);
	if (mount < 0)
		return err_hint(err,
			err_raise(err, ERR_HOST, "the importer's tree cannot be mounted: %s",
				strerrordesc_np(-mount)),
			"the pool must be on a file system with id-mapped mounts: btrfs, XFS or ext4");
	rc = fdpass_send(importer->socket, "g", 1, &mount, 1);
	return rc < 0 ? err_raise_sys(err, rc, "start the importer") : 0;
}

static int clone_child(struct importer *importer, struct launch *launch, int theirs)
{
	int pidfd = -1;
	struct clone_args args = { .flags = JAIL_NAMESPACES | CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
		.exit_signal = SIGCHLD };
	int pid;

	launch->socket = theirs;
	pid = raw_clone3(&args);
	if (pid == 0)
		child(launch);
	if (pid < 0)
		return pid;
	importer->pid = pid;
	importer->pidfd = pidfd;
	return 0;
}

int importer_start(struct importer *importer, const char *programs, const char *request, int tree,
	int archive, bool rootless, struct err *err)
{
	cleanup_fd int program = open_program(programs), theirs = -1;
	cleanup_free char *argument = str_dup(request);
	struct launch launch = { .program = program,
		.archive = archive,
		.argv = { (char *)(uintptr_t)PROGRAM, argument, NULL } };
	int pair[2], rc;

	*importer = (struct importer){ .pidfd = -1, .socket = -1 };
	if (program < 0)
		return err_hint(err, err_raise_sys(err, program, "find %s", PROGRAM),
			"it lies beside cay-keeper; build or install it");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_raise_sys(err, -errno, "make a socket");
	importer->socket = pair[0];
	theirs = pair[1];
	rc = clone_child(importer, &launch, theirs);
	if (rc < 0) {
		fd_close(&importer->socket);
		return err_raise_sys(err, rc, "start the importer in namespaces of its own");
	}
	rc = set_up(importer, tree, rootless, err);
	if (rc < 0)
		(void)importer_end(importer);
	return rc;
}

int importer_end(struct importer *importer)
{
	int status = 0;

	if (importer->pid > 0) {
		(void)raw_pidfd_kill(importer->pidfd, SIGKILL);
		while (waitpid(importer->pid, &status, 0) < 0 && errno == EINTR)
			;
	}
	importer->pid = 0;
	fd_close(&importer->pidfd);
	fd_close(&importer->socket);
	return status;
}
