/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/launch.c - the order matters and each step says why:
 *   1. session; all descriptors go but one;
 *   2. join U2: from here on no capability reaches anything outside the sandbox; not dumpable, so no payload can look into our memory;
 *   3. bounding set; the seccomp filter while CAP_SYS_ADMIN in U2 still allows it without no_new_privs; then all capabilities but the program's and those that
 *      finding a user and becoming one take. Here it waits: under the payload's filter, with ids that no payload has;
 *   4. stdio; user look-up in the sandbox's own files; ids; the last capabilities;
 *   5. working directory as the user, close all else; wait for the word that the command may begin, where it is held; execute.
 */
#include "sandbox/launch.h"
#include "base/ablate.h"
#include "base/str.h"
#include "sandbox/account.h"
#include "sandbox/filters.h"
#include "sys/confine.h"
#include "sys/cred.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define FILES_DEFAULT 65536

/*
 * What uid 0 inside keeps in the default profile, in its ownerless namespace: enough for apt, sudo and su. CAP_NET_RAW is a right over no network there: the sandbox's belongs
 * to the namespace above. But the file of Debian's ping has it, and the kernel executes no program whose file has what is not in the bounding set.
 */
#define CAPS_DEFAULT \
	(CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_DAC_OVERRIDE) | CAP_BIT(CAP_FOWNER) | \
		CAP_BIT(CAP_FSETID) | CAP_BIT(CAP_KILL) | CAP_BIT(CAP_SETUID) | \
		CAP_BIT(CAP_SETGID) | CAP_BIT(CAP_SETFCAP) | CAP_BIT(CAP_SYS_CHROOT) | \
		CAP_BIT(CAP_NET_RAW))

static uint64_t profile_caps(enum spec_profile profile)
{
	if (ablated("capability_drop"))
		return UINT64_MAX;
	switch (profile) {
	case PROFILE_DEFAULT:
		return CAPS_DEFAULT;
	case PROFILE_DEBUG:
		return CAPS_DEFAULT | CAP_BIT(CAP_SYS_PTRACE);
	case PROFILE_STRICT:
	case PROFILE_COUNT:
		break;
	}
	return 0;
}

static int set_limit(int which, uint64_t soft, uint64_t hard)
{
	struct rlimit now, want;

	if (getrlimit((__rlimit_resource_t)which, &now) < 0)
		return -errno;
	want.rlim_max = hard < now.rlim_max ? hard : now.rlim_max;
	want.rlim_cur = soft < want.rlim_max ? soft : want.rlim_max;
	return setrlimit((__rlimit_resource_t)which, &want) < 0 ? -errno : 0;
}

int launch_limits(uint64_t asked)
{
	uint64_t files = asked != 0 ? asked : FILES_DEFAULT;
	int rc = ablated("core_limit") ? set_limit(RLIMIT_CORE, RLIM_INFINITY, RLIM_INFINITY)
				       : confine_core();

	if (rc == 0 && !ablated("rlimit_nofile"))
		rc = set_limit(RLIMIT_NOFILE, files < 1024 ? files : 1024, files);
	if (rc == 0)
		rc = set_limit(RLIMIT_MEMLOCK, 64 << 10, 8 << 20);
	if (rc == 0)
		rc = set_limit(RLIMIT_MSGQUEUE, 819200, 819200);
	if (rc == 0 && !ablated("rlimit_sigpending"))
		rc = set_limit(RLIMIT_SIGPENDING, 4096, 4096);
	if (rc == 0)
		rc = set_limit(RLIMIT_RTPRIO, 0, 0);
	if (rc == 0)
		rc = set_limit(RLIMIT_NICE, 0, 0);
	return rc;
}

static int take_stdio(const int stdio[3])
{
	int high[3];

	/* above 2 first: a source may be one of the targets */
	for (int i = 0; i < 3; i++) {
		high[i] = fcntl(stdio[i], F_DUPFD_CLOEXEC, 10);
		if (high[i] < 0)
			return -errno;
	}
	for (int i = 0; i < 3; i++) {
		if (dup2(high[i], i) < 0)
			return -errno;
		(void)close(high[i]);
	}
	return 0;
}

static int begin(struct err *err)
{
	sigset_t none;

	(void)sigemptyset(&none);
	if (sigprocmask(SIG_SETMASK, &none, NULL) < 0 || setsid() < 0)
		return err_raise_sys(err, -errno, "start a session");
	(void)umask(022);
	return 0;
}

static int take_streams(const struct launch_request *request, const int stdio[3], struct err *err)
{
	int rc = take_stdio(stdio);

	if (rc < 0)
		return err_raise_sys(err, rc, "take over standard input and output");
	if (request->tty != 0 && ioctl(0, TIOCSCTTY, 0) < 0)
		return err_raise_sys(err, -errno, "take the terminal");
	return 0;
}

static int join_payload(int u2, struct err *err)
{
	const unsigned long dumpable = ablated("helper_undumpable");

	/* before as well: at no instant may a process with the payload's credentials be open to it */
	if (prctl(PR_SET_DUMPABLE, dumpable, 0, 0, 0) < 0)
		return err_raise_sys(err, -errno, "become undumpable");
	if (setns(u2, CLONE_NEWUSER) < 0)
		return err_raise_sys(err, -errno, "join the payload's user namespace");
	if (prctl(PR_SET_DUMPABLE, dumpable, 0, 0, 0) < 0)
		return err_raise_sys(err, -errno, "become undumpable");
	return 0;
}

static int set_ids(const struct launch_place *place, const struct account *who, struct err *err)
{
	if (place->single_id == 0 && setgroups(who->n_groups, who->groups) < 0)
		return err_raise_sys(err, -errno, "set the groups of '%s'", who->name);
	if (setresgid(who->gid, who->gid, who->gid) == 0 &&
		setresuid(who->uid, who->uid, who->uid) == 0)
		return 0;
	if (errno == EINVAL)
		return err_raise(err, ERR_BAD_USER,
			"user '%s' has the ids %u:%u, which this sandbox does not have", who->name,
			who->uid, who->gid);
	return err_raise_sys(err, -errno, "become user '%s'", who->name);
}

/* No call that is needed later is refused by a filter: payloads change ids too. */
static int give_up_privileges(const struct launch_place *place, struct err *err)
{
	enum spec_profile profile = (enum spec_profile)place->profile;
	uint64_t caps = profile_caps(profile);
	const struct filter *filter = filter_for(profile);
	int rc = cred_bound(caps);

	if (rc < 0)
		return err_raise_sys(err, rc, "drop capabilities");
	if (profile == PROFILE_STRICT && !ablated("no_new_privs_strict") &&
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_raise_sys(err, -errno, "set no_new_privs");
	rc = ablated("seccomp") ? 0 : confine_seccomp(filter->code, filter->n);
	if (rc < 0)
		return err_raise_sys(err, rc, "install the system call filter");
	rc = cred_set_caps(
		caps | CAP_BIT(CAP_SETUID) | CAP_BIT(CAP_SETGID) | CAP_BIT(CAP_DAC_READ_SEARCH));
	return rc < 0 ? err_raise_sys(err, rc, "give up capabilities") : 0;
}

/* execve computes the final sets: uid 0 gets the bounding set, others nothing. */
static int become_user(const struct launch_place *place, const struct account *who, struct err *err)
{
	uint64_t caps = profile_caps((enum spec_profile)place->profile);
	int rc = set_ids(place, who, err);

	if (rc < 0)
		return rc;
	rc = cred_set_caps(who->uid == 0 ? caps : 0);
	return rc < 0 ? err_raise_sys(err, rc, "give up the last capabilities") : 0;
}

static int enter_cwd(const char *cwd, struct err *err)
{
	char now[PATH_MAX];

	if (chdir(cwd) < 0)
		return err_raise(err, ERR_BAD_CWD, "working directory '%s': %s", cwd,
			strerrordesc_np(errno));
	/* a directory that is not reachable from the root would be one of the host (CVE-2024-21626) */
	if (!ablated("cwd_check") && (getcwd(now, sizeof(now)) == NULL || now[0] != '/'))
		return err_raise(
			err, ERR_BAD_CWD, "working directory '%s' is not inside the sandbox", cwd);
	return 0;
}

static void run_as_script(const char *path, char **argv, char **envp)
{
	size_t argc = 0;
	char **with;

	while (argv[argc] != NULL)
		argc++;
	with = xalloc((argc + 3) * sizeof(*with));
	with[0] = (char *)(uintptr_t) "/bin/sh";
	with[1] = (char *)(uintptr_t)path;
	for (size_t i = 1; i < argc; i++)
		with[i + 1] = argv[i];
	(void)execve("/bin/sh", with, envp);
	free(with);
}

static int try_execute(const char *path, char **argv, char **envp)
{
	/* much cheaper than an execve() that fails */
	if (access(path, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR))
		return -errno;
	(void)execve(path, argv, envp);
	if (errno == ENOEXEC) {
		run_as_script(path, argv, envp);
		errno = ENOEXEC;
	}
	return -errno;
}

/* execvp(3), but with the PATH of the new environment. */
static int search_and_execute(char **argv, char **envp)
{
	const char *path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	int result = -ENOENT;

	if (strchr(argv[0], '/') != NULL)
		return try_execute(argv[0], argv, envp);
	for (char **e = envp; *e != NULL; e++) {
		if (str_starts(*e, "PATH="))
			path = *e + 5;
	}
	for (;;) {
		size_t len = strcspn(path, ":");
		char file[PATH_MAX];

		if (snprintf(file, sizeof(file), "%.*s/%s", len == 0 ? 1 : (int)len,
			    len == 0 ? "." : path, argv[0]) < (int)sizeof(file)) {
			int rc = try_execute(file, argv, envp);

			if (rc != -ENOENT && rc != -ENOTDIR)
				result = rc;
		}
		if (path[len] == '\0') /* behind the last ':' there is a member, too */
			return result;
		path += len + 1;
	}
}

static void execute(char **argv, char **envp, struct err *err)
{
	int rc = argv[0][0] == '\0'
			 ? -ENOENT
			 : search_and_execute(argv, ablated("clean_environment") ? environ : envp);

	if (rc == -ENOENT || rc == -ENOTDIR)
		(void)err_raise(
			err, ERR_CMD_NOT_FOUND, "command '%s' not found in the sandbox", argv[0]);
	else
		(void)err_raise(err, ERR_CMD_NOT_EXECUTABLE, "command '%s' cannot be executed: %s",
			argv[0], strerrordesc_np(-rc));
}

/* Splits @count strings off *@text; the list ends with NULL, and has room for one more. */
static char **split(char **text, uint32_t count)
{
	char **list = xalloc((count + 2) * sizeof(*list));

	for (uint32_t i = 0; i < count; i++) {
		list[i] = *text;
		*text += strlen(*text) + 1;
	}
	return list;
}

static void add_home(char **envp, uint32_t envc, const struct account *who)
{
	for (uint32_t i = 0; i < envc; i++) {
		if (str_starts(envp[i], "HOME="))
			return;
	}
	envp[envc] = str_dupf("HOME=%s", who->home);
}

/* Everything goes but @keep, which is close-on-exec. */
static int close_others(unsigned int first, int keep, struct err *err)
{
	if (raw_close_range(first, (unsigned int)keep - 1, 0) < 0 ||
		raw_close_range((unsigned int)keep + 1, ~0U, 0) < 0)
		return err_raise(err, ERR_INTERNAL, "close what the program must not have");
	return 0;
}

/*
 * The first look at a name of an overlay is the dear one: of users, of PATH, of the loader and what nearly every program loads. So is the first use of our own memory behind a fork: the user that is
 * found here is forgotten, it may be another one when it counts.
 */
static void look_ahead(void)
{
	static const char *const names[] = {
		"/etc/passwd",
		"/etc/group",
		"/usr/local/sbin",
		"/usr/local/bin",
		"/usr/sbin",
		"/usr/bin",
		"/sbin",
		"/bin",
		"/etc/ld.so.preload",
		"/etc/ld.so.cache",
#if defined(__x86_64__)
		"/lib64/ld-linux-x86-64.so.2",
		"/lib/x86_64-linux-gnu/libc.so.6"
#elif defined(__aarch64__)
		"/lib/ld-linux-aarch64.so.1",
		"/lib/aarch64-linux-gnu/libc.so.6"
#endif
	};

	struct account who;
	struct err ignored;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		(void)!access(names[i], F_OK);
	(void)!account_find("", &who, &ignored);
}

/* Whoever would have said it may be gone: then nobody answers for what would run. */
static int await_word(int keep, struct err *err)
{
	char word;
	ssize_t n;

	do
		n = recv(keep, &word, 1, 0);
	while (n < 0 && errno == EINTR);
	return n == 1 ? 0 : err_raise(err, ERR_STATE, "nobody said that the program may begin");
}

int launch_prepare(const struct launch_place *place, int u2, int keep, struct err *err)
{
	int rc = begin(err);

	if (rc == 0)
		rc = join_payload(u2, err);
	if (rc == 0 && !ablated("cwd_check"))
		rc = close_others(0, keep, err);
	if (rc == 0)
		rc = give_up_privileges(place, err);
	if (rc == 0)
		look_ahead();
	return rc;
}

void launch_become(const struct launch_place *place, const struct launch_request *request,
	char *text, const int stdio[3], int keep, struct err *err)
{
	const char *cwd = text, *user = cwd + strlen(cwd) + 1;
	char *rest = text + strlen(cwd) + 1 + strlen(user) + 1;
	char **argv = split(&rest, request->argc), **envp = split(&rest, request->envc);
	struct account who;

	if (take_streams(request, stdio, err) < 0 || account_find(user, &who, err) < 0)
		return;
	add_home(envp, request->envc, &who);
	if (become_user(place, &who, err) < 0)
		return;
	if (cwd[0] == '\0' && access(who.home, X_OK) < 0)
		cwd = "/"; /* nobody asked for the home that many system users do not have */
	if (enter_cwd(cwd[0] != '\0' ? cwd : who.home, err) < 0)
		return;
#ifdef CAY_ABLATION
	/* what a forgotten close-on-exec flag would leave: a descriptor of a directory */
	(void)!fcntl(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), F_SETFD, 0);
#endif
	if (!ablated("close_range") && close_others(3, keep, err) < 0)
		return;
	if (request->held != 0 && await_word(keep, err) < 0)
		return;
	/* who has not heard this would have another do it again */
	if (send(keep, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
		execute(argv, envp, err);
	else
		(void)err_raise_sys(err, -errno, "say that the program is about to begin");
}
