/* SPDX-License-Identifier: Apache-2.0 */
/* Who a process is: ids, groups, capabilities, limits, mask, directory, nice value, attributes. A child gives up what it can. */
#include "object.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/resource.h>

#define CPU_SOFT 100 /* seconds of processor time */
#define CPU_HARD 200
#define CPU_USED 1.1

static int report[2], go[2];

static double used(void)
{
	struct timespec t;

	MUST(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void use_some(void)
{
	MUST(setrlimit(RLIMIT_CPU, &(struct rlimit){ CPU_SOFT, CPU_HARD }) == 0);
	while (used() < CPU_USED)
		;
}

/* Whose count begins anew has as much less of it. */
static void expect_left(void)
{
	struct rlimit now;

	MUST(getrlimit(RLIMIT_CPU, &now) == 0);
	if ((double)now.rlim_cur - used() > CPU_SOFT - 1 || now.rlim_cur < CPU_SOFT / 2 ||
		now.rlim_max - now.rlim_cur != CPU_HARD - CPU_SOFT)
		object_fail("%g of %lu and %lu s are used", used(), now.rlim_cur, now.rlim_max);
}

static void lesser(void)
{
	gid_t groups[3] = { 7, 8, 9 }, now[8];
	struct rlimit limit = { 50, 60 }, less = { 4096, RLIM_INFINITY };
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];
	char path[64], c;

	MUST(mkdir("/tmp/place", 0755) == 0 && chdir("/tmp/place") == 0);
	(void)umask(0137);
	MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0 && setpriority(PRIO_PROCESS, 0, 7) == 0);
	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	MUST(setgroups(3, groups) == 0 && setresgid(20, 21, 22) == 0 && setresuid(30, 31, 32) == 0);
	MUST(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0 &&
		prctl(PR_SET_PDEATHSIG, SIGUSR2, 0, 0, 0) == 0);
	/* less than it has: what it has stays */
	MUST(setrlimit(RLIMIT_DATA, &less) == 0);
	MUST(write(report[1], "r", 1) == 1 && read(go[0], &c, 1) == 1);

	uid_t r, e, s;
	gid_t gr, ge, gs;
	int sig;

	MUST(getresuid(&r, &e, &s) == 0 && r == 30 && e == 31 && s == 32);
	MUST(getresgid(&gr, &ge, &gs) == 0 && gr == 20 && ge == 21 && gs == 22);
	MUST(getgroups(8, now) == 3 && now[0] == 7 && now[1] == 8 && now[2] == 9);
	MUST(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == 50 && limit.rlim_max == 60);
	MUST(getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur == 4096);
	MUST(getpriority(PRIO_PROCESS, 0) == 7 && umask(0) == 0137);
	MUST(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 &&
		prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1);
	MUST(prctl(PR_GET_PDEATHSIG, &sig, 0, 0, 0) == 0 && sig == SIGUSR2);
	MUST(getcwd(path, sizeof(path)) != NULL && strcmp(path, "/tmp/place") == 0);
	MUST(syscall(SYS_capget, &header, caps) == 0 && caps[0].effective == 0 &&
		caps[0].permitted == 0);
	MUST(setuid(0) < 0);
	_exit(0);
}

/* Without root's privileges, but for one, which whatever it executes has too. */
static void keeper_of_one(void)
{
	const unsigned int kept = 1U << CAP_KILL;
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2] = { { kept, kept, kept } }, now[2];
	char c;

	MUST(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0 && setresuid(30, 30, 30) == 0);
	MUST(syscall(SYS_capset, &header, caps) == 0);
	MUST(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0) == 0);
	MUST(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
	MUST(write(report[1], "r", 1) == 1 && read(go[0], &c, 1) == 1);

	MUST(syscall(SYS_capget, &header, now) == 0 && memcmp(caps, now, sizeof(now)) == 0);
	MUST(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_KILL, 0, 0) == 1);
	MUST(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0) == 0);
	_exit(0);
}

/* In a root of its own, and away from it. */
static void elsewhere(void)
{
	char path[64], c;
	int fd;

	MUST(mkdir("/tmp/root", 0755) == 0 && mkdir("/tmp/root/inner", 0755) == 0);
	MUST(chroot("/tmp/root") == 0 && chdir("/inner") == 0);
	MUST(write(report[1], "r", 1) == 1 && read(go[0], &c, 1) == 1);

	MUST(getcwd(path, sizeof(path)) != NULL && strcmp(path, "/inner") == 0);
	MUST(access("/tmp", F_OK) < 0 && access("/inner", F_OK) == 0);
	MUST(access("/../../..//tmp", F_OK) < 0);
	fd = open("../made", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	MUST(fd >= 0 && close(fd) == 0 && access("/made", F_OK) == 0);
	_exit(0);
}

int main(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct before[2], after[2];
	char path[4096] = { 0 }, c;
	pid_t child, other, third;
	int status;

	MUST(pipe(report) == 0 && pipe(go) == 0);
	child = fork();
	if (child == 0)
		lesser();
	other = fork();
	if (other == 0)
		elsewhere();
	third = fork();
	if (third == 0)
		keeper_of_one();
	for (int i = 0; i < 3; i++)
		MUST(read(report[0], &c, 1) == 1);
	MUST(syscall(SYS_capget, &header, before) == 0);

	use_some();

	object_ready();

	expect_left();

	MUST(syscall(SYS_capget, &header, after) == 0 &&
		memcmp(before, after, sizeof(before)) == 0);
	MUST(prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) == 0);
	MUST(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0 &&
		strstr(path, "creds") != NULL);
	MUST(syscall(SYS_ptrace, 0, 0, 0, 0) < 0 && errno == EPERM); /* the filter is there */
	MUST(write(go[1], "ggg", 3) == 3 && waitpid(child, &status, 0) == child);
	if (status != 0)
		object_fail("the child ended with %d", status);
	MUST(waitpid(other, &status, 0) == other);
	if (status != 0)
		object_fail("the child in another root ended with %d", status);
	MUST(access("/tmp/root/made", F_OK) == 0);
	MUST(waitpid(third, &status, 0) == third);
	if (status != 0)
		object_fail("the child with one capability ended with %d", status);
	return object_done();
}
