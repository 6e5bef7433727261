/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cay-spawn - starts keepers for cayd, each in its own control group, and clears up behind them.
 *
 * In root mode this is the one process with root's power that talks to cayd. It takes requests of fixed size with an id of [a-z0-9]{20} and a
 * descriptor, looks at nothing else, allocates nothing, and ends when cayd's end of the socket closes; keepers stay. Where one of them has a live fork it only
 * stays behind as that one's reaper (reap_on()).
 *
 *	cay-spawn MODE [FIRST-SUBUID FIRST-SUBGID]	socket on descriptor 3
 *
 * MODE: root | range | single. In the last two every keeper gets a user namespace: with a subordinate range through newuidmap and newgidmap, or one uid.
 *
 * Invariants: a child is in children[] from its start to the report of its end; an id's groups are removed only when they are empty; the report ENDED comes
 * after that, or after CLEANUP_DEADLINE_MS with dirty set (something is stuck in the kernel). The server may be killed, and the next one start the same sandbox
 * anew, while we do not run: so nothing is done to what bears an id's name without groups_lock() and a look whether it is still what we made (still_meant()).
 */
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "prog/cay-spawn/groups.h"
#include "prog/cay-spawn/start.h"
#include "sys/fdpass.h"
#include "sys/file.h"
#include "sys/raw.h"
#include "sys/spawn_request.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define CHILDREN_MAX        16384
#define CLEANUPS_MAX        512
#define CLEANUP_DEADLINE_MS 10000
#define RETRY_FIRST_MS      2 /* after an attempt that came too early; doubles */
#define RETRY_MS            20
#define FINISH_MS           10000
#define QUIET_MS            500

struct child {
	pid_t pid;
	bool template;
	char id[SPAWN_ID_SIZE];
	uint64_t group; /* groups_number() of the one made for it; 0 = none */
};

struct cleanup_job {
	struct spawn_event report;
	uint64_t group; /* of what ended */
	uint64_t deadline_ns, next_ns;
	unsigned int wait_ms; /* behind the last attempt; 0 = there was none */
};

static struct child children[CHILDREN_MAX];
static size_t n_children;
static struct cleanup_job cleanups[CLEANUPS_MAX];
static size_t n_cleanups;
static struct groups groups;
static struct start_mode mode;
static int signal_fd = -1;

static void report(const struct spawn_event *e)
{
	int rc = fdpass_send(SPAWN_FD, e, sizeof(*e), NULL, 0);

	(void)rc; /* when cayd is gone the loop sees it */
}

static struct spawn_event event_for(enum spawn_event_kind kind, const char *id)
{
	struct spawn_event e = { .magic = SPAWN_MAGIC, .version = SPAWN_VERSION, .kind = kind };

	e.uid_map = (uint32_t)mode.kind;
	(void)!str_copy(e.id, sizeof(e.id), id);
	return e;
}

/* Start what @r asks for; returns its pid. Locked. */
static int spawn(const struct spawn_request *r, int socket_fd, uint64_t *ret_group)
{
	cleanup_fd int group_fd = groups_make(&groups, r->id, ret_group);

	return group_fd == -EBUSY ? -EBUSY : start_program(r, socket_fd, group_fd);
}

/* A keeper or template that was killed could not remove its own. */
static void remove_files(const char *id)
{
	static const char *const endings[] = { "sock", "tpl", "state", "files" };
	const char *run = getenv("CAY_RUN");
	char path[4200];

	for (size_t i = 0; run != NULL && i < ARRAY_SIZE(endings); i++) {
		int n = snprintf(path, sizeof(path), "%s/keepers/%s.%s", run, id, endings[i]);

		if (n > 0 && (size_t)n < sizeof(path))
			(void)unlink(path);
	}
}

/* Without a server there may be another one, which has a cay-spawn of its own. */
static bool server_there(void)
{
	struct pollfd p = { .fd = SPAWN_FD };

	(void)poll(&p, 1, 0);
	return (p.revents & (POLLHUP | POLLERR)) == 0;
}

/* Is what bears the name still what is to be cleared away? Locked. */
static bool still_meant(const struct cleanup_job *c)
{
	return c->group != 0 ? groups_number(&groups, c->report.id) == c->group : server_there();
}

/* Kill, and remove what is empty. @lock: as groups_lock() said. Return: 0 when nothing is left to do. */
static int clean_up(const struct cleanup_job *c, int lock)
{
	bool empty;

	if (lock == -EWOULDBLOCK)
		return -EBUSY;
	if (!still_meant(c))
		return 0;
	empty = groups_kill(&groups, c->report.id);
	if (empty || c->wait_ms == 0)
		remove_files(c->report.id);
	return empty ? groups_remove(&groups, c->report.id) : -EBUSY;
}

static void cleanup_finish(size_t i, bool dirty)
{
	cleanups[i].report.dirty = dirty;
	report(&cleanups[i].report);
	cleanups[i] = cleanups[--n_cleanups];
}

static void cleanup_later(struct cleanup_job *c, uint64_t now)
{
	c->wait_ms = c->wait_ms == 0 ? RETRY_FIRST_MS : c->wait_ms * 2;
	if (c->wait_ms > RETRY_MS)
		c->wait_ms = RETRY_MS;
	c->next_ns = now + c->wait_ms * NS_PER_MS;
}

/* One attempt at every pending id whose time has come. Not at each event: with many in flight most attempts would be in vain, and each takes the kernel's locks of groups. */
static void cleanups_run(void)
{
	uint64_t now = clock_now_ns();
	cleanup_fd int lock = -1;

	for (size_t i = n_cleanups; i-- > 0;) {
		struct cleanup_job *c = &cleanups[i];

		if (c->next_ns > now)
			continue;
		if (lock < 0 && lock != -EWOULDBLOCK)
			lock = groups_lock(false);
		if (clean_up(c, lock) == 0)
			cleanup_finish(i, false);
		else if (now > c->deadline_ns)
			cleanup_finish(i, true);
		else
			cleanup_later(c, now);
	}
}

/* Until the next attempt; -1: there is none. */
static int cleanups_wait_ms(void)
{
	uint64_t now = clock_now_ns(), next = UINT64_MAX;

	for (size_t i = 0; i < n_cleanups; i++)
		next = cleanups[i].next_ns < next ? cleanups[i].next_ns : next;
	if (n_cleanups == 0)
		return -1;
	return next <= now ? 0 : (int)((next - now + NS_PER_MS - 1) / NS_PER_MS);
}

static void cleanup_begin(const struct spawn_event *e, uint64_t group)
{
	struct cleanup_job job = {
		.report = *e,
		.group = group,
		.deadline_ns = clock_now_ns() + CLEANUP_DEADLINE_MS * NS_PER_MS,
	};

	if (n_cleanups == CLEANUPS_MAX) {
		cleanup_fd int lock = groups_lock(true);

		job.report.dirty = clean_up(&job, lock) < 0;
		report(&job.report);
		return;
	}
	cleanups[n_cleanups++] = job;
}

static void reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (size_t i = 0; i < n_children; i++) {
			struct child c = children[i];
			struct spawn_event e;

			if (c.pid != pid)
				continue;
			e = event_for(SPAWN_EVENT_ENDED, c.id);
			e.pid = pid;
			e.status = status;
			children[i] = children[--n_children];
			cleanup_begin(&e, c.group);
			break;
		}
	}
}

/* What is left of an earlier keeper of this id goes before a new one comes: its clean-up would kill the new one. */
static void finish_cleanup_of(const char *id)
{
	for (;;) {
		bool pending = false;

		for (size_t i = 0; i < n_cleanups; i++) {
			if (!str_eq(cleanups[i].report.id, id))
				continue;
			pending = true;
			cleanups[i].next_ns = 0;
		}
		if (!pending)
			return;
		(void)poll(NULL, 0, 2); /* bounded by the deadline of the clean-up */
		cleanups_run();
	}
}

static void handle_start(const struct spawn_request *r, int fd)
{
	struct spawn_event e = event_for(SPAWN_EVENT_STARTED, r->id);
	struct child c = { 0 };
	cleanup_fd int lock = -1;

	finish_cleanup_of(r->id);
	lock = groups_lock(true);
	if (!server_there())
		return;
	if (lock == -EWOULDBLOCK)
		log_error("spawn",
			"a cay-spawn of an earlier server stands still in the midst of its work: going on beside it");
	memcpy(c.id, r->id, SPAWN_ID_SIZE);
	c.template = r->kind == SPAWN_TEMPLATE;
	c.pid = n_children == CHILDREN_MAX ? -EAGAIN : fd < 0 ? -EBADF : spawn(r, fd, &c.group);
	if (c.pid > 0) {
		children[n_children++] = c;
		e.pid = c.pid;
	} else {
		e.kind = SPAWN_EVENT_FAILED;
		e.status = -c.pid;
		if (c.group != 0)
			(void)groups_remove(&groups, r->id);
	}
	report(&e);
}

/* What the server does not know anything of but the id: it means what is there now. */
static void handle_cleanup(const struct spawn_request *r)
{
	struct spawn_event e = event_for(SPAWN_EVENT_ENDED, r->id);
	cleanup_fd int lock = groups_lock(true);
	bool there = server_there();
	uint64_t group = groups_number(&groups, r->id);

	fd_close(&lock);
	if (there)
		cleanup_begin(&e, group);
}

static bool request_valid(const struct spawn_request *r, ssize_t n)
{
	return n == (ssize_t)sizeof(*r) && r->magic == SPAWN_MAGIC && r->version == SPAWN_VERSION &&
	       r->beside >= 0 && (r->beside == 0 || r->kind == SPAWN_JOB) &&
	       r->stock_mib <= SPAWN_STOCK_MIB_MAX &&
	       (r->stock_mib == 0 || r->kind == SPAWN_TEMPLATE) &&
	       memchr(r->id, '\0', sizeof(r->id)) != NULL && id_valid(r->id);
}

/* Is @pid the parent of a fork's processes, or a template, which may have made such parents? Those came to us when their template ended. */
static bool is_helper(pid_t pid)
{
	for (size_t i = 0; i < n_children; i++) {
		if (children[i].pid == pid)
			return children[i].template;
	}
	return true;
}

static bool has_helpers(void)
{
	cleanup_buf struct buf list = BUF_INIT(CHILDREN_MAX * 16);
	char *save = NULL;

	if (file_read_at(AT_FDCWD, "/proc/thread-self/children", &list) < 0 || list.n == 0)
		return false;
	for (const char *pid = strtok_r(list.p, " ", &save); pid != NULL;
		pid = strtok_r(NULL, " ", &save)) {
		uint64_t number;

		if (str_to_u64(pid, 1, INT32_MAX, &number) == 0 && is_helper((pid_t)number))
			return true;
	}
	return false;
}

/*
 * The first processes of a live fork are children of a helper outside its pid namespace. When the sandbox is killed somebody has to reap them before its PID 1
 * can end: the machine's PID 1 would have to if we were not there, and that one may look every few seconds only, or, in a container, never.
 */
static void reap_on(void)
{
	pid_t pid = 0;

	(void)raw_close_range(0, ~0U, 0);
	(void)prctl(PR_SET_NAME, "cay-reaper");
	while ((pid >= 0 || errno == EINTR) && has_helpers())
		pid = waitpid(-1, NULL, 0);
}

/*
 * cayd is gone: nobody will start anything again. Jobs and keepers without a sandbox end by themselves, now: clear up behind them, and leave when nothing has
 * ended for a while. Keepers with a sandbox stay.
 */
static attr_noreturn void finish(void)
{
	uint64_t now = clock_now_ns(), deadline = now + FINISH_MS * NS_PER_MS,
		 quiet = now + QUIET_MS * NS_PER_MS;

	while (n_children + n_cleanups > 0 && now < deadline && now < quiet) {
		struct pollfd p = { .fd = signal_fd, .events = POLLIN };
		struct signalfd_siginfo info;
		size_t before = n_children;

		(void)poll(&p, 1, RETRY_MS);
		while (read(signal_fd, &info, sizeof(info)) > 0)
			;
		reap();
		cleanups_run();
		now = clock_now_ns();
		if (n_children != before || n_cleanups > 0)
			quiet = now + QUIET_MS * NS_PER_MS;
	}
	groups_sweep(&groups);
	groups_fini(&groups);
	reap_on();
	_exit(0);
}

static void handle_request(void)
{
	struct spawn_request r;
	int fds[1] = { -1 };
	size_t n_fds = 0;
	ssize_t n = fdpass_recv(SPAWN_FD, &r, sizeof(r), fds, 1, &n_fds);
	cleanup_fd int fd = n >= 0 && n_fds == 1 ? fds[0] : -1;

	if (n == 0 || n == -ECONNRESET)
		finish();
	if (n < 0 || !request_valid(&r, n)) {
		log_error("spawn", "refused a malformed request");
		return;
	}
	switch ((enum spawn_kind)r.kind) {
	case SPAWN_SANDBOX:
	case SPAWN_JOB:
	case SPAWN_JOB_ABOVE:
	case SPAWN_TEMPLATE:
		handle_start(&r, fd);
		return;
	case SPAWN_CLEANUP:
		handle_cleanup(&r);
		return;
	}
	log_error("spawn", "refused an unknown request kind");
}

static int signals_open(void)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	/* a terminal's Ctrl-C ends cayd, and through the socket us */
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static attr_noreturn void loop(void)
{
	for (;;) {
		struct pollfd p[2] = { { .fd = SPAWN_FD, .events = POLLIN },
			{ .fd = signal_fd, .events = POLLIN } };
		struct signalfd_siginfo info;

		if (poll(p, 2, cleanups_wait_ms()) < 0 && errno != EINTR)
			_exit(1);
		if (p[1].revents != 0) {
			while (read(signal_fd, &info, sizeof(info)) > 0)
				;
			reap();
		}
		if (p[0].revents != 0)
			handle_request();
		cleanups_run();
	}
}

static int parse_arguments(int argc, char **argv)
{
	uint64_t uid, gid;

	if (argc >= 2 && str_eq(argv[1], "root"))
		mode.kind = START_ROOT;
	else if (argc >= 2 && str_eq(argv[1], "single"))
		mode.kind = START_SINGLE;
	else if (argc >= 4 && str_eq(argv[1], "range"))
		mode.kind = START_RANGE;
	else
		return -EINVAL;
	if (mode.kind != START_RANGE)
		return 0;
	if (str_to_u64(argv[2], 1, UINT32_MAX, &uid) < 0 ||
		str_to_u64(argv[3], 1, UINT32_MAX, &gid) < 0)
		return -EINVAL;
	mode.first_subuid = (uint32_t)uid;
	mode.first_subgid = (uint32_t)gid;
	return 0;
}

int main(int argc, char **argv)
{
	struct spawn_event ready;
	const char *tag = getenv("CAY_TAG");
	int rc;

	log_init("cay-spawn");
	if (parse_arguments(argc, argv) < 0 || tag == NULL) {
		log_error("spawn", "started by cayd only");
		return 64;
	}
	(void)raw_close_range(SPAWN_FD + 1, ~0U, 0);
	(void)fcntl(SPAWN_FD, F_SETFD, FD_CLOEXEC);
	/* what a dying keeper leaves comes to us: unreaped children would keep its pid namespace from ending */
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (mode.kind == START_ROOT)
		(void)prctl(
			PR_SET_DUMPABLE, 0); /* rootless: newuidmap must own our /proc entries */
	rc = start_init(&mode);
	if (rc < 0) {
		log_error("spawn", "no cay-keeper or cay-template beside cay-spawn: %s",
			strerrordesc_np(-rc));
		return 1;
	}
	groups_find(&groups, tag, mode.kind == START_ROOT);
	groups_sweep(&groups);
	signal_fd = signals_open();
	if (signal_fd < 0)
		return 1;
	ready = event_for(SPAWN_EVENT_READY, "");
	ready.status = groups.base[0] == '\0'                                 ? SPAWN_CGROUP_NONE
		       : groups_hold_limits(&groups, mode.kind == START_ROOT) ? SPAWN_CGROUP_V2
									      : SPAWN_CGROUP_BARE;
	report(&ready);
	loop();
}
