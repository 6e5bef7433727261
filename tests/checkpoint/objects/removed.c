/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories that were removed and are still used: to work in, by two processes, open to be read, as places; below one that is gone too, or with another in their place. They stay so: nobody finds
 * them by name, nothing can be made in them, and what lies above them is what did. Who had the same one has the same one.
 */
#include "object.h"

#include <sys/file.h>

#define TOP   "/tmp/removed"
#define OTHER 33

static struct timespec changed;

static void make(const char *path, mode_t mode)
{
	MUST(mkdir(path, 0700) == 0 && chmod(path, mode) == 0 && chown(path, OTHER, OTHER) == 0);
}

static void is_removed(int fd, mode_t mode)
{
	struct stat st;

	MUST(fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) && st.st_nlink == 0);
	MUST((st.st_mode & 07777) == mode && st.st_uid == OTHER && st.st_gid == OTHER);
	MUST(openat(fd, "new", O_WRONLY | O_CREAT, 0600) < 0 && errno == ENOENT);
}

static bool is_same(int a, int b)
{
	struct stat first, second;

	MUST(fstat(a, &first) == 0 && fstat(b, &second) == 0);
	return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

/* In what was restored the topmost that is gone has another name. */
static void is_called(const char *path, const char *name)
{
	static const char own[] = TOP "/.cay-removed-";

	if (strcmp(path, name) != 0 && (strncmp(path, own, sizeof(own) - 1) != 0 ||
					       strcmp(strrchr(path, '/'), strrchr(name, '/')) != 0))
		object_fail("it works in '%s'", path);
}

static void check_cwd(mode_t mode, const char *name, const char *to_top)
{
	int fd = open(".", O_RDONLY | O_DIRECTORY);
	char path[256];
	struct stat above, top;
	ssize_t n;

	MUST(fd >= 0);
	is_removed(fd, mode);
	MUST(close(fd) == 0);
	MUST(getcwd(path, sizeof(path)) == NULL && errno == ENOENT);
	n = readlink("/proc/self/cwd", path, sizeof(path) - 1);
	MUST(n > 0);
	path[n] = '\0';
	if (name != NULL)
		is_called(path, name);
	MUST(stat(to_top, &above) == 0 && stat(TOP, &top) == 0 && above.st_ino == top.st_ino);
}

/* Waits until it is told, and checks itself. */
static pid_t other(const char *directory, mode_t mode, int ret[2])
{
	int go[2], done[2];
	pid_t pid;
	char c;

	MUST(pipe(go) == 0 && pipe(done) == 0);
	pid = fork();
	if (pid == 0) {
		MUST(chdir(directory) == 0 && write(done[1], "i", 1) == 1);
		MUST(read(go[0], &c, 1) == 1);
		check_cwd(mode, NULL, "..");
		(void)fflush(stdout);
		_exit(0);
	}
	MUST(pid > 0 && read(done[0], &c, 1) == 1);
	ret[0] = go[1];
	return pid;
}

int main(void)
{
	int reader, place, shared, worked, again, go[2], status;
	struct stat st;
	pid_t child;

	MUST(mkdir(TOP, 0755) == 0);
	make(TOP "/above", 0755);
	make(TOP "/above/here", 0750);
	make(TOP "/again", 0711);
	make(TOP "/open", 0700);
	MUST(chdir(TOP "/above/here") == 0);
	MUST((reader = open(TOP "/open", O_RDONLY | O_DIRECTORY)) >= 0);
	MUST((place = open(TOP "/open", O_PATH)) >= 0 && (shared = dup(reader)) >= 0);
	MUST((worked = open(".", O_RDONLY | O_DIRECTORY)) >= 0);
	MUST(flock(worked, LOCK_EX) == 0);
	child = other(TOP "/again", 0711, go);
	MUST(rmdir(TOP "/above/here") == 0 && rmdir(TOP "/above") == 0);
	MUST(rmdir(TOP "/again") == 0 && mkdir(TOP "/again", 0700) == 0);
	MUST(rmdir(TOP "/open") == 0 && stat(TOP, &st) == 0);
	changed = st.st_mtim;

	object_ready();

	check_cwd(0750, TOP "/above/here (deleted)", "../..");
	is_removed(reader, 0700);
	is_removed(shared, 0700);
	MUST(fstat(place, &st) == 0 && st.st_nlink == 0 && (fcntl(place, F_GETFL) & O_PATH) != 0);
	MUST(is_same(reader, place) && (fcntl(reader, F_GETFL) & O_DIRECTORY) != 0);
	MUST((again = open(".", O_RDONLY)) >= 0 && is_same(worked, again));
	MUST(flock(again, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK && close(again) == 0);
	MUST(write(go[0], "g", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
	MUST(access(TOP "/above", F_OK) < 0 && access(TOP "/open", F_OK) < 0);
	MUST(stat(TOP, &st) == 0 && memcmp(&st.st_mtim, &changed, sizeof(changed)) == 0);
	MUST(rmdir(TOP "/again") == 0 && rmdir(TOP) == 0 && chdir("/") == 0);
	return object_done();
}
