/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/box.h - the sandbox as kernel objects: groups, starter, builder, namespaces, mounts, init.
 *
 * box_prepare() does all that does not depend on the specification, and as much of the rest as is told ahead of time (the pool of warm sandboxes is made of boxes
 * in that state: init runs, the root is in place, the usual limits are set); box_start() does what is missing or turns out different. One box per keeper process.
 */
#ifndef CAY_SANDBOX_BOX_H
#define CAY_SANDBOX_BOX_H

#include "base/err.h"
#include "sandbox/clocks.h"
#include "sandbox/foresight.h"
#include "sandbox/rootfs.h"
#include "sandbox/spec.h"
#include "sandbox/starter.h"
#include "sys/cgroup.h"

/** struct box_config - where this keeper lives; from its environment. Strings are borrowed for ever. */
struct box_config {
	const char *state;    /* CAY_STATE */
	const char *run;      /* CAY_RUN */
	const char *tag;      /* CAY_TAG */
	bool rootless;        /* CAY_MODE=rootless */
	bool single_id;       /* only one id is mapped in our namespace */
	bool no_limits_ok;    /* CAY_ACCEPT_NO_LIMITS=1 */
	const char *programs; /* directory of our programs */
};

/** struct box - see above. */
struct box {
	const struct box_config *config;
	char id[ID_LEN + 1];
	struct cgroup cgroup;
	int live; /* the live directory until box_started(), then -1 unless it is a disk: see open_live() */
	bool disk;          /* box_judge() has seen that it is one */
	unsigned int trees; /* that were made in it ahead of time */
	struct spec
		done; /* what of a specification is in force: image (NULL: no root yet), lower, limits, disk_bytes */
	struct rootfs rootfs;
	struct foresight foresight; /* the mount that is on the root already */
	struct finish finished;     /* what is done already of what the placer does last */
	bool is_finished;           /* @finished says something */
	struct starter
		starter; /* one that is prepared for processes of a template has only a placer */
	struct launch_place place; /* what the starter's programs have in common */
	bool awaits_processes;     /* from a template, straight after the start */
	bool has_waiters; /* it has cloned one: in the root, under the limits and in the domain of @place */
	int builder_sock; /* -1 once init runs */
	/*
	 * PID 1, in the host's pid namespace; 0 before box_prepare(). It is a child of ours, so the number is its own until we have reaped it: namespaces and
	 * directories of the sandbox are had through it when they are needed, and no descriptor of them is kept.
	 */
	pid_t init_pid;
	uint32_t
		filters; /* system call filters of a program that has made none itself: ours, above those that we have ourselves */
	bool init_gone;  /* it has been reaped: the sandbox is dead */
	int u2;          /* payload's user namespace; -1 as soon as init is in it */
	uint32_t slot;
	struct network network; /* all -1 where this kernel cannot filter packets */
	struct clocks clocks;   /* of what is to come into it from a template: box_set_clocks() */
	bool devices_changed;   /* of these files */
	json_t *databases; /* those of SQLite among them, where that is so: numbers_databases(), or NULL */
	json_t *numbers; /* of open files of the processes that are awaited (sandbox/numbers.h), or NULL */
	int timens;       /* a time namespace with these, -1 = none: they are the machine's */
	uint64_t charged; /* bytes elsewhere that count against the disk limit */
	struct spec spec; /* valid after box_start() */
	int pids_max;     /* cgroup_pids_open() while processes are lent, or are about to be; -1 */
	struct cgroup_limits lent; /* above the limits that were asked for, for the moment */
};

/** struct box_ahead - what of a sandbox is made before it is asked for, because box_start() will probably ask for it. */
struct box_ahead {
	const struct spec *expect; /* root and limits; NULL: nothing is known */
	bool foresee; /* its first mount too; the sandbox has never run. Else its mounts are ignored */
	const char *
		point; /* and what a file, its only mount, will be mounted on; the same. NULL: none */
};

/**
 * box_prepare() - make everything that does not depend on a specification.
 * @box: filled; needs box_kill() in any case afterwards.
 * @slot: which range of host uids, 0..16383 (root mode); no other live sandbox may have it.
 * @ahead: what of it is known already. Borrowed.
 * Context: once, before any other thread or child; root, or root of the rootless namespace. Blocks for milliseconds.
 * Return: 0, or %ERR_HOST / %ERR_INTERNAL naming the step.
 */
int box_prepare(struct box *box, const struct box_config *config, const char *id, uint32_t slot,
	const struct box_ahead *ahead, struct err *err) attr_must_use;

/**
 * box_start() - bring everything into the state that @spec asks for.
 * @spec: taken over on success (zeroed), untouched on failure.
 * Return: 0 or an error; after an error the box can only be killed.
 */
int box_start(struct box *box, struct spec *spec, struct err *err) attr_must_use;

/** box_started() - let go of what box_start() alone needed: behind what somebody waits for. */
void box_started(struct box *box);

/**
 * box_set_clocks() - before box_start(): have a time namespace ready in which the clocks are as they have to be after @then (clocks_save(); NULL: nothing is known). @stood: as
 * of clocks_load().
 * Where none can be made they stay the machine's.
 * Return: by how many nanoseconds they step back, 0 = they do not.
 */
uint64_t box_set_clocks(struct box *box, const json_t *then, bool stood);

/** box_judge() - before box_suits() and box_start(): does what was made ahead of time hold for @spec? */
void box_judge(struct box *box, const struct spec *spec);

/**
 * box_suits() - can the waiters that there are become programs of @spec? If not, the caller ends them before box_start(), which makes another starter then.
 */
bool box_suits(const struct box *box, const struct spec *spec);

/** box_order_waiter() - ask the starter for a waiter with its end @sock of a socket pair, in leaf @leaf (both borrowed; -1: no leaf). Return: 0 or -errno. */
int box_order_waiter(struct box *box, int sock, int leaf) attr_must_use;

/** box_gateway_id() - the uid and gid of its gateway in root mode; of no sandbox and of no other gateway. */
uid_t box_gateway_id(const struct box *box);

/** box_allow_ports() - let connections to these ports, and no others, reach the gateway. Return: 0, or an error: %ERR_UNSUPPORTED when this kernel cannot filter packets; then the former ones hold. */
int box_allow_ports(struct box *box, const struct spec_ports *ports, struct err *err) attr_must_use;

/** box_namespace() - descriptor of the namespace @name (as in /proc/PID/ns) of PID 1 of the sandbox, owned by the caller; -errno. Not "user": see box_payload_userns(). */
int box_namespace(const struct box *box, const char *name) attr_must_use;

/** box_payload_userns() - descriptor of the payload's user namespace, owned by the caller; -errno. */
int box_payload_userns(const struct box *box) attr_must_use;

/** box_netlink() - a netlink socket of @protocol in the sandbox's network. Return: descriptor or -errno. */
int box_netlink(const struct box *box, int protocol) attr_must_use;

/** box_program() - open one of our programs. Return: descriptor or -errno. */
int box_program(const struct box_config *config, const char *name) attr_must_use;

/** box_group_limits() - what the groups of @spec are told. */
struct cgroup_limits box_group_limits(const struct spec *spec) attr_must_use;

/** box_lend_ready() - what box_lend_pids() would do first; it closes it again. */
void box_lend_ready(struct box *box);

/** box_lend_pids() - let there be @n more processes than were asked for, while so many of ours count as theirs; 0 ends it. Where nothing limits them it does nothing. Context: behind box_lend_ready() 1 µs. */
void box_lend_pids(struct box *box, uint64_t n);

/**
 * box_lend_memory() - let the programs have as much memory more than was asked for as they use now, while copies of theirs count, too; never more than was asked for once more, also
 * when something is lent still. Where nothing limits it it does nothing.
 */
void box_lend_memory(struct box *box);

/**
 * box_take_back_memory() - of what box_lend_memory() has lent, all that is not in use. With control groups of version 2 it is all of it, and the kernel ends programs that have taken
 * it; with those of version 1 they keep what they have, get 1 MiB more, once, and it is to be called again.
 * Return: bytes that are still lent.
 */
uint64_t box_take_back_memory(struct box *box);

/** box_kill() - send SIGKILL to every process of the sandbox. Their parent has to reap them: see keeper_kill_all(). */
void box_kill(const struct box *box);

/** box_wait_empty() - wait until the sandbox's groups hold no process. 0, or -ETIMEDOUT. */
int box_wait_empty(const struct box *box, int timeout_ms) attr_must_use;

/** box_disk_full() - would a small write into the live directory be refused now, by its limit or by a full pool? What is used up: "disk", "inodes", or NULL. */
const char *box_disk_full(const struct box *box);

/**
 * box_changed() - could a cow mount of the running sandbox differ from what it started with?
 *
 * Looks at the top of each upper tree only, so the usual answer, nothing was written, takes microseconds.
 * Return: false only when nothing was; true also when it could not be told.
 */
bool box_changed(const struct box *box);

/**
 * box_charge() - count @bytes that lie outside the live directory against the disk limit too: what is left for the payload shrinks by them.
 * Return: 0 (also when there is no limit), -EDQUOT when so much is not left, other -errno.
 */
int box_charge(struct box *box, uint64_t bytes) attr_must_use;

/** box_disk_bytes() - what the live directory holds, charged by the pool; UINT64_MAX when it does not count. */
uint64_t box_disk_bytes(const struct box *box);

/**
 * box_null() - open the sandbox's own /dev/null to read: the host's could be locked and watched by programs, and not be opened again by its name.
 * Return: descriptor, -ENODEV when it is something else, other -errno.
 */
int box_null(const struct box *box) attr_must_use;

/**
 * box_terminal() - make a terminal in the sandbox's /dev/pts.
 * @ret_slave: the program's side. Return: the master descriptor, or -errno.
 */
int box_terminal(const struct box *box, int *ret_slave) attr_must_use;

/**
 * box_terminal_numbered() - make the terminal of this number, which is free. No slave is opened.
 * Return: the master descriptor, -EEXIST when the number is taken, or other -errno.
 */
int box_terminal_numbered(const struct box *box, uint32_t number) attr_must_use;

#endif
