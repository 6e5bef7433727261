/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/keeper_gateway.c - the keeper's gateway: started when somebody inside first tries to get out, or when cayd asks; started again when it dies.
 *
 * The keeper holds the sockets inside the sandbox's network, so nothing that waits in them is lost with a gateway. It looks at nothing that a gateway says but the kind,
 * the control group and the socket of a message.
 */
#include "base/ablate.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "gateway/link.h"
#include "sandbox/keeper.h"
#include "sandbox/socket_owner.h"
#include "sys/cred.h"
#include "sys/fdpass.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <linux/netlink.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define LIVED_NS      (60 * NS_PER_S) /* one that lived so long died of something new */
#define PAUSE_MIN_NS  (10 * NS_PER_MS)
#define PAUSE_DOUBLES 9 /* about five seconds */

#define SEARCH_NS NS_PER_MS /* of processor time, for the process of one socket */
#define SEARCH_SHARE_NS \
	(NS_PER_S / \
		5) /* of each second, for all: who opens sockets in a loop does not have its keeper to itself */

/* --- starting --- */

/*
 * No capability behind execve, and an id that nobody has: above those of all sandboxes, one for each slot. A rootless keeper has no such id to give, and no user namespace
 * can be made any more once a sandbox is built: its gateway keeps the user's id, and its jail alone is between it and what that user may.
 */
static int drop_ids(const struct keeper *k)
{
	uid_t id = box_gateway_id(&k->box);
	int rc = cred_bound(0);

	if (rc < 0 || k->config.rootless || ablated("gateway_uid"))
		return rc;
	if (setgroups(0, NULL) < 0 || setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
		return -errno;
	return 0;
}

/* @tasks: of the control group that it goes into by itself; -1: none. */
static void gateway_child(const struct keeper *k, int sock, int program, int tasks)
{
	static char name[] = "cay-gateway";
	char *const argv[] = { name, NULL };
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	if (tasks >= 0 && write(tasks, "0", 1) != 1)
		_exit(1);
	program = fcntl(program, F_DUPFD_CLOEXEC, 10);
	if (program < 0 || dup2(sock, LINK_FD) < 0 || fcntl(LINK_FD, F_SETFD, 0) < 0 ||
		raw_close_range(LINK_FD + 1, ~0U, CLOSE_RANGE_CLOEXEC) < 0 || drop_ids(k) < 0)
		_exit(1);
	(void)syscall(SYS_execveat, program, "", argv, environ, AT_EMPTY_PATH);
	_exit(1);
}

/*
 * In a group of its own, so that what its sockets hold is told from what the programs' do, and what they make it do is bounded as what they do themselves; in ours where there
 * are no groups. A limit that nothing can hold has been accepted, else there was no sandbox.
 */
static int clone_gateway(struct keeper *k, int sock)
{
	struct clone_args args = { .exit_signal = SIGCHLD };
	cleanup_fd int program = box_program(&k->config, "cay-gateway");
	uint64_t cpu = ablated("gateway_processor") ? 0 : k->box.spec.limits.cpu_millis;
	cleanup_fd int group = cgroup_gateway_open(&k->box.cgroup, cpu);
	cleanup_fd int tasks = cgroup_gateway_tasks(&k->box.cgroup, cpu);
	int pid;

	if (program < 0)
		return program;
	if (group == -EOPNOTSUPP && k->config.no_limits_ok)
		group = cgroup_gateway_open(&k->box.cgroup, 0);
	if (group < 0 && group != -ENOENT)
		return group;
	if (tasks < 0 && tasks != -ENOENT)
		return tasks;
	if (group >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (unsigned int)group;
	}
	pid = raw_clone3(&args);
	if (pid == 0)
		gateway_child(k, sock, program, tasks);
	return pid;
}

static int send_start(struct keeper *k)
{
	struct link_message m = { .kind = LINK_START, .version = LINK_VERSION };
	const struct network *n = &k->box.network;
	cleanup_fd int diag = box_netlink(&k->box, NETLINK_SOCK_DIAG);
	int fds[LINK_SOCKETS] = { n->tcp, n->udp, n->log, diag };

	if (diag < 0)
		return diag;
	if (fault("keeper.gateway.send_start") < 0)
		return -EMFILE;
	(void)!str_copy(m.id, sizeof(m.id), k->id);
	return fdpass_send(k->gateway.sock, &m, sizeof(m), fds, LINK_SOCKETS);
}

static int gateway_start(struct keeper *k)
{
	struct keeper_gateway *g = &k->gateway;
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -errno;
	/* only our end must never block; the other's flags are its own business */
	(void)fcntl(pair[1], F_SETFL, 0);
	rc = clone_gateway(k, pair[1]);
	(void)close(pair[1]);
	if (rc < 0) {
		(void)close(pair[0]);
		return rc;
	}
	g->pid = rc;
	g->sock = pair[0];
	g->started_ns = clock_now_ns();
	keeper_event(k, "gateway.started", NULL, json_pack("{s:i}", "pid", rc));
	/* it would wait for that for ever, and the sandbox for it: it is reaped, and another one started, as when it dies by itself */
	if (send_start(k) < 0)
		(void)kill(g->pid, SIGKILL);
	return 0;
}

bool keeper_gateway_running(const struct keeper *k)
{
	return k->gateway.sock >= 0;
}

void keeper_gateway_wanted(struct keeper *k)
{
	uint64_t now = clock_now_ns();

	/* one that has closed its end is still to be reaped: its death is counted then */
	if (k->gateway.pid != 0 || now < k->gateway.not_before_ns)
		return;
	if (gateway_start(k) < 0)
		k->gateway.not_before_ns = now + NS_PER_S;
}

/* --- while it runs --- */

static const struct exec *exec_of_group(const struct keeper *k, uint64_t cgroup)
{
	list_for_each (&k->execs, pos, next) {
		struct exec *e = list_entry(pos, struct exec, node);

		/* the packet filter has room for one half of it */
		if (e->cgroup != 0 && (uint32_t)e->cgroup == (uint32_t)cgroup)
			return e;
	}
	return NULL;
}

static void tell_exec(const struct keeper *k, const struct link_message *question)
{
	struct link_message m = { .kind = LINK_EXEC, .cgroup = question->cgroup };
	const struct exec *e = exec_of_group(k, m.cgroup);

	(void)!str_copy(m.id, sizeof(m.id), e != NULL ? e->id : "");
	/* one that does not read its answers does without */
	(void)!fdpass_send(k->gateway.sock, &m, sizeof(m), NULL, 0);
}

/* Is there time left for it in this second? */
static bool may_search(struct keeper_gateway *g)
{
	uint64_t now = clock_now_ns();

	if (now - g->search_from_ns >= NS_PER_S) {
		g->search_from_ns = now;
		g->searched_ns = 0;
	}
	return g->searched_ns < SEARCH_SHARE_NS;
}

static void tell_process(struct keeper *k, const struct link_message *question)
{
	struct link_message m = {
		.kind = LINK_PROCESS, .cgroup = question->cgroup, .inode = question->inode
	};
	const struct exec *e = exec_of_group(k, m.cgroup);
	uint64_t began = clock_thread_ns();
	struct process owner;

	if (e != NULL && may_search(&k->gateway)) {
		if (socket_owner_find(&k->box.cgroup, e->leaf, m.inode, SEARCH_NS, &owner) == 0) {
			m.process.pid = owner.pid;
			m.process.inner_pid = owner.inner_pid;
			(void)!str_copy(m.process.comm, sizeof(m.process.comm), owner.comm);
		}
		k->gateway.searched_ns += clock_thread_ns() - began;
	}
	(void)!fdpass_send(k->gateway.sock, &m, sizeof(m), NULL, 0);
}

void keeper_gateway_read(struct keeper *k)
{
	struct link_message m;
	size_t none;
	ssize_t n = fdpass_recv(k->gateway.sock, &m, sizeof(m), NULL, 0, &none);

	if (n == 0)
		fd_close(&k->gateway.sock); /* its end will be reaped */
	if (n == sizeof(m) && m.kind == LINK_WHO)
		tell_exec(k, &m);
	else if (n == sizeof(m) && m.kind == LINK_WHICH)
		tell_process(k, &m);
}

int keeper_gateway_hand_over(struct keeper *k, int fd)
{
	const struct link_message m = { .kind = LINK_CLIENT };

	return keeper_gateway_running(k) ? fdpass_send(k->gateway.sock, &m, sizeof(m), &fd, 1)
					 : -EPIPE;
}

void keeper_gateway_ended(struct keeper *k, int wait_status)
{
	struct keeper_gateway *g = &k->gateway;
	uint64_t now = clock_now_ns();

	g->deaths = now - g->started_ns > LIVED_NS ? 0 : g->deaths;
	g->not_before_ns =
		now + (PAUSE_MIN_NS << (g->deaths < PAUSE_DOUBLES ? g->deaths : PAUSE_DOUBLES));
	g->deaths++;
	g->pid = 0;
	fd_close(&g->sock);
	if (k->state == KEEPER_RUNNING || k->state == KEEPER_PAUSED)
		keeper_event(
			k, "gateway.ended", NULL, json_pack("{s:i}", "wait_status", wait_status));
}

uint64_t keeper_gateway_next_ns(const struct keeper *k)
{
	bool waits = k->box.network.tcp >= 0 && k->gateway.pid == 0;

	return waits && k->gateway.not_before_ns > clock_now_ns() ? k->gateway.not_before_ns
								  : UINT64_MAX;
}
