/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/dump_tree.c - who is whose child, and who the processes are. */
#include "base/str.h"
#include "checkpoint/dump.h"
#include "sys/cgroup.h"
#include "sys/feature.h"
#include "sys/file.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define GROUPS_MAX 65536
#define EXTENDED   18 /* the first state that is not there by itself: tiles (AMX) */

#ifndef ARCH_GET_XCOMP_SUPP
#define ARCH_GET_XCOMP_SUPP 0x1021
#endif

/* The last number of a line that has one for each pid namespace from ours inwards. */
static int32_t innermost(const char *status, const char *key)
{
	uint64_t numbers[32];
	size_t n = proc_numbers(status, key, 10, numbers, ARRAY_SIZE(numbers));

	return n > 0 ? (int32_t)numbers[n - 1] : 0;
}

struct dump_process *dump_by_host_pid(const struct dump *d, pid_t host)
{
	for (size_t i = 0; i < d->n; i++) {
		if (d->processes[i].tracee.host == host)
			return &d->processes[i];
	}
	return NULL;
}

bool dump_has_pid(const struct dump *d, uint64_t inner)
{
	for (size_t i = 0; i < d->n; i++) {
		if ((uint64_t)d->processes[i].tracee.inner == inner)
			return true;
	}
	return inner == 1; /* each sandbox has one */
}

int32_t dump_inner_group(const struct dump *d, pid_t host)
{
	for (size_t i = 0; i < d->n; i++) {
		if (d->processes[i].stat.group == host)
			return d->processes[i].place.group;
	}
	return 0;
}

struct birth {
	int pids;
	volatile int32_t number;
};

/* Its children are born in the namespace; who has entered cannot leave it. */
static int enter_and_tell(void *birth)
{
	struct birth *b = birth;
	pid_t child = setns(b->pids, CLONE_NEWPID) == 0 ? vfork() : -1;

	if (child == 0) {
		b->number = (int32_t)syscall(SYS_getpid);
		_exit(0);
	}
	if (child > 0)
		(void)waitpid(child, NULL, 0);
	_exit(0);
}

/* The number in @pids of somebody of ours who is born there and ends; only he is told. Return: it or -errno. */
static int32_t number_of_one_born(int pids)
{
	static char stack[32768] __attribute__((aligned(16)));
	struct birth b = { .pids = pids, .number = -ECHILD };
	pid_t child =
		clone(enter_and_tell, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, &b);

	if (child < 0)
		return -errno;
	(void)waitpid(child, NULL, 0);
	return b.number;
}

int32_t dump_last_number(const struct dump *d)
{
	int32_t number = -ESRCH;

	/* twins are the last that were made */
	for (size_t i = d->n; i > 0; i--) {
		if (d->processes[i - 1].twin.inner > 0)
			return d->processes[i - 1].twin.inner;
	}
	for (size_t i = 0; number < 0 && i < d->n; i++) {
		const struct dump_process *p = &d->processes[i];
		cleanup_fd int pids =
			p->tracee.zombie ? -1
					 : openat(p->tracee.proc, "ns/pid", O_RDONLY | O_CLOEXEC);

		if (pids >= 0)
			number = number_of_one_born(pids);
	}
	return number;
}

int dump_text(struct dump_process *p, struct err *err)
{
	cleanup_buf struct buf stat = BUF_INIT(65536);
	const char *name;
	int rc = file_read_at(p->tracee.proc, "stat", &stat);

	if (rc == 0)
		rc = proc_stat_parse(buf_cstr(&stat), &p->stat);
	if (rc < 0)
		return err_raise_sys(err, rc, "look at process %d", p->tracee.inner);
	free(p->status);
	p->status = str_dup(buf_cstr(&p->tracee.status));
	name = proc_value(p->status, "Name");
	if (name != NULL)
		(void)snprintf(p->name, sizeof(p->name), "%.*s", (int)strcspn(name, "\n"), name);
	return 0;
}

/* Of who ran when it was listed, or was no more among those then: it may be another by now. To ask for it takes the lock of all control groups of the machine. */
static int ask_leaf(const struct dump *d, const struct dump_process *p, uint32_t *ret)
{
	cleanup_buf struct buf text = BUF_INIT(65536);
	const char *group, *slash;
	int rc = file_read_at(p->tracee.proc, "cgroup", &text);

	if (rc < 0)
		return rc;
	group = text.n > 0 ? cgroup_v2_path(text.p) : NULL;
	slash = group != NULL ? strrchr(group, '/') : NULL;
	for (uint32_t i = 0; slash != NULL && i < d->order->n_leaves; i++) {
		if (str_eq(slash + 1, d->order->leaves[i])) {
			*ret = i;
			return 0;
		}
	}
	return -ENOENT;
}

/* The keeper has listed them by leaves, frozen, and nobody in one leaves it. */
static int find_leaf(const struct dump *d, size_t i, uint32_t *ret)
{
	const struct dump_process *p = &d->processes[i];

	*ret = 0;
	if (d->order->n_leaves == 0)
		return 0;
	if (d->examination != NULL || i >= d->order->n_pids)
		return ask_leaf(d, p, ret);
	while (*ret + 1 < d->order->n_leaves && i >= d->order->leaf_ends[*ret])
		++*ret;
	return 0;
}

/* Since it was first looked at. Who has ended is in the control group of nothing. */
static bool has_ended(const struct dump_process *p)
{
	cleanup_buf struct buf text = BUF_INIT(4096);
	struct proc_stat now;

	return file_read_at(p->tracee.proc, "stat", &text) < 0 ||
	       proc_stat_parse(buf_cstr(&text), &now) < 0 || now.state == 'Z' || now.state == 'X';
}

/* Who enters a Landlock domain has given up privileges, and its children have too. */
static bool is_confined(const struct dump *d, const struct dump_process *p)
{
	if (p->tracee.zombie || d->order->confined[p->place.leaf] == 0)
		return false;
	for (size_t i = 0; i < p->tracee.n_threads; i++)
		if (p->tracee.threads[i].no_new_privs)
			return true;
	return proc_number(p->status, "NoNewPrivs", 10, 0) != 0;
}

/* Orphans have SIGCHLD, and so has what comes from outside. What a zombie has sent it need not send again: it is found as one that sends nothing (__WCLONE). So is one with a number that is no signal, of which clone(2) takes any of 8 bits, and clone3(2) none. */
static uint32_t signal_at_end(const struct dump_process *p, const struct dump_process *parent)
{
	int sig = p->stat.exit_signal;
	bool sends = !p->tracee.zombie && sig > 0 && sig < NSIG;

	if (parent == NULL || sig == SIGCHLD)
		return 0;
	return 1 + (sends ? (uint32_t)sig : 0);
}

int dump_tree(struct dump *d, struct err *err)
{
	for (size_t i = 0; i < d->n; i++) {
		int rc = dump_text(&d->processes[i], err);

		if (rc < 0)
			return rc;
	}
	for (size_t i = 0; i < d->n; i++) {
		struct dump_process *p = &d->processes[i];
		const struct dump_process *parent = dump_by_host_pid(d, p->stat.ppid);

		p->place = (struct plan_input){ .pid = p->tracee.inner,
			.parent = p->stat.ppid == d->order->init_pid ? 1
				  : parent != NULL                   ? parent->tracee.inner
								     : 0,
			.session = innermost(p->status, "NSsid"),
			.group = innermost(p->status, "NSpgid"),
			.zombie = p->tracee.zombie,
			.status = p->stat.exit_code,
			.signal = signal_at_end(p, parent),
			.image = (uint32_t)i };
		if (p->tracee.headless)
			(void)!dump_refuse(
				p, err, "its first thread has ended, and others have not");
		else if (find_leaf(d, i, &p->place.leaf) < 0 && !p->tracee.zombie && !has_ended(p))
			(void)!dump_refuse(p, err, "it is in no control group of an exec");
		else if (is_confined(d, p))
			(void)!dump_refuse(p, err,
				"it may be confined by Landlock rules of its own, which nobody can read");
		else
			continue;
		if (!dump_note(d, err))
			return -EINVAL;
	}
	return 0;
}

/* --- who it is --- */

static int read_ids(struct dump *d, struct dump_process *p, struct err *err)
{
	static const char *const sets[] = { "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb" };
	static uint64_t groups[GROUPS_MAX];
	static uint32_t narrow[GROUPS_MAX];
	uint64_t ids[4];
	size_t n = proc_numbers(p->status, "Groups", 10, groups, GROUPS_MAX);
	int rc = 0;

	for (size_t i = 0; i < n; i++)
		narrow[i] = (uint32_t)groups[i];
	p->out.groups = image_add_bytes(&d->image, narrow, n * sizeof(*narrow));
	if (proc_numbers(p->status, "Uid", 10, ids, 4) != 4)
		rc = -EINVAL;
	for (int i = 0; i < 4; i++)
		p->out.uid[i] = (uint32_t)ids[i];
	if (proc_numbers(p->status, "Gid", 10, ids, 4) != 4)
		rc = -EINVAL;
	for (int i = 0; i < 4; i++)
		p->out.gid[i] = (uint32_t)ids[i];
	for (size_t i = 0; i < ARRAY_SIZE(sets); i++)
		p->out.caps[i] = proc_number(p->status, sets[i], 16, 0);
	return rc < 0 ? err_raise_sys(err, rc, "read the ids of process %d", p->tracee.inner) : 0;
}

/* What is left of a limit of processor time, of which a fork counts its own from zero: none is less than a second. */
static void take_used(struct dump_process *p, uint64_t *limit)
{
	uint64_t used = (p->stat.user_time + p->stat.system_time) / (uint64_t)sysconf(_SC_CLK_TCK);

	if (*limit != RLIM_INFINITY)
		*limit = *limit > used ? *limit - used : 1;
}

static int read_limits(struct dump_process *p, const struct tracee *from)
{
	for (int i = 0; i < (int)IMAGE_LIMITS; i++) {
		struct rlimit now;

		if (prlimit(from->host, (__rlimit_resource_t)i, NULL, &now) < 0)
			return -errno;
		p->out.limits[i].soft = now.rlim_cur;
		p->out.limits[i].hard = now.rlim_max;
	}
	take_used(p, &p->out.limits[RLIMIT_CPU].soft);
	take_used(p, &p->out.limits[RLIMIT_CPU].hard);
	return 0;
}

/* What prctl() or personality() has returned. Return: 0 or -errno. */
static int inherited(const struct dump_process *p, enum dump_inherited what, uint32_t *ret)
{
	long result = dump_inherited(p, what)->result;

	*ret = result < 0 ? 0 : (uint32_t)result;
	return result < 0 ? (int)result : 0;
}

/* Are there register states that a process has only when it has asked for them? */
static bool has_extended(void)
{
	uint64_t supported = 0;

	return syscall(SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &supported) == 0 &&
	       supported >> EXTENDED != 0;
}

/* Of /proc: its filters may refuse that it is asked. */
static int read_personality(const struct tracee *t, uint32_t *ret)
{
	cleanup_buf struct buf text = BUF_INIT(64);
	int rc = file_read_at(t->proc, "personality", &text);

	if (rc == 0 && sscanf(buf_cstr(&text), "%x", ret) != 1)
		rc = -EPROTO;
	return rc;
}

static int read_attributes(struct dump_process *p)
{
	const struct tracee_question *extend = dump_inherited(p, INHERITED_MAY_EXTEND);
	struct image_process *o = &p->out;
	int rc = inherited(p, INHERITED_DUMPABLE, &o->dumpable);

	if (p->tracee.opened)
		o->dumpable = p->tracee.dumpable;
	if (rc == 0)
		rc = inherited(p, INHERITED_SECUREBITS, &o->securebits);
	if (rc == 0)
		rc = inherited(p, INHERITED_THP_DISABLE, &o->thp_disable);
	/* kernels from before Linux 6.3 have none */
	(void)!inherited(p, INHERITED_NO_NEW_CODE, &o->no_new_code);
	if (rc == 0)
		rc = read_personality(dump_source(p), &o->personality);
	o->may_extend = 0;
	if (rc < 0 || !has_extended())
		return rc;
	memcpy(&o->may_extend, extend->answer, sizeof(o->may_extend));
	return extend->result < 0 ? (int)extend->result : 0;
}

/* Who is asked has a little memory of ours meanwhile, which counts as its own. */
static int check_memory_limit(const struct dump_process *p, struct err *err)
{
	const uint64_t used = proc_number(p->status, "VmSize", 10, 0) << 10;
	struct rlimit most;

	if (prlimit(p->tracee.host, RLIMIT_AS, NULL, &most) < 0 ||
		used + TRACEE_MEMORY <= most.rlim_cur)
		return 0;
	return dump_refuse(p, err,
		"its limit of memory (RLIMIT_AS) leaves no room for the %u KiB that a capture needs in it",
		TRACEE_MEMORY >> 10);
}

int dump_creds_check(struct dump *d, struct dump_process *p, struct err *err)
{
	int rc = dump_filters_check(d, p, err);

	if (rc == 0)
		rc = read_ids(d, p, err);
	return rc == 0 ? check_memory_limit(p, err) : rc;
}

/* A value that prctl() has put into memory. */
static int told(const struct dump_process *p, enum dump_told what, uint32_t *ret)
{
	const struct tracee_question *q = dump_told(p, what);

	memcpy(ret, q->answer, sizeof(*ret));
	return q->result < 0 ? (int)q->result : 0;
}

/*
 * A kernel from before Linux 6.3 does not tell for which barriers a process is registered: a barrier of one process's threads is made for who is and refused otherwise. For barriers of
 * all processes everybody may be registered.
 */
static uint32_t try_barriers(struct dump_process *p)
{
	static const uint64_t own[] = { MEMBARRIER_CMD_PRIVATE_EXPEDITED,
		MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ };
	uint32_t found = MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED;

	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		if (TRACEE_CALL(&p->tracee, 0, SYS_membarrier, own[i]) == 0)
			found |= (uint32_t)own[i] << 1; /* MEMBARRIER_CMD_REGISTER_… of it */
	}
	return found;
}

int dump_attributes(struct dump_process *p, struct err *err)
{
	long barriers = feature_withheld(FEATURE_MEMBARRIER_LIST)
				? -EINVAL
				: dump_told(p, TOLD_BARRIERS)->result;
	int rc = told(p, TOLD_DEATH_SIGNAL, &p->out.parent_death_signal);

	if (rc == 0)
		rc = told(p, TOLD_SUBREAPER, &p->out.subreaper);
	p->out.barriers = barriers < 0 ? try_barriers(p) : (uint32_t)barriers;
	return rc < 0 ? err_raise_sys(err, rc, "read the attributes of process %d", p->tracee.inner)
		      : 0;
}

int dump_creds(struct dump_process *p, struct err *err)
{
	int rc;

	p->out.pid = p->tracee.inner;
	p->out.umask = (uint32_t)proc_number(p->status, "Umask", 8, 022);
	rc = read_limits(p, dump_source(p));
	if (rc == 0)
		rc = read_attributes(p);
	return rc < 0 ? err_raise_sys(err, rc, "read the attributes of process %d", p->tracee.inner)
		      : 0;
}
