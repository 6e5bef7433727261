/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/starter.h - the process that every process of a sandbox is cloned from, and two that it clones for itself.
 *
 * starter   a child of the keeper. It sits in the sandbox's v1 groups (which it joins first of all), joins the sandbox's namespaces except the payload's user
 *           namespace, and before the first program puts itself into one Landlock domain, and below the filter of
 *           refusals that the keeper is told of, so that all programs share them. It clones with CLONE_PARENT: the keeper is the
 *           parent of all and collects their exit statuses. It parses nothing.
 * placer    puts the mounts in place, which nothing in that domain could; ends when they are. Where a starter comes with the programs (live fork), it is the first one itself.
 * waiter    will become one program: it has done launch_prepare() and waits for the request. One is made ahead of time, so that a start need not wait for that.
 */
#ifndef CAY_SANDBOX_STARTER_H
#define CAY_SANDBOX_STARTER_H

#include "base/err.h"
#include "sandbox/builder.h"
#include "sandbox/launch.h"
#include "sandbox/placer.h"
#include "sys/cgroup.h"

/** struct starter - the keeper's handle. */
struct starter {
	pid_t pid;
	int sock; /* SOCK_SEQPACKET */
	pid_t placer_pid;
	int placer_sock; /* the same to the placer; -1: it has ended, or there is none yet */
};

/** STARTER_NONE - no process. */
#define STARTER_NONE \
	{ \
		.sock = -1, .placer_sock = -1 \
	}

#define STARTER_SOCK_FD 3 /* descriptor of starter_main() */

/** struct waiter_fds - what a waiter begins with; the starter keeps none of it. */
struct waiter_fds {
	int sock; /* its end of a SOCK_SEQPACKET pair: what is sent at the other end waits there until it can be read */
	int u2, cgroups; /* namespaces to join: nothing of the payload may clone into groups above the root of the second, and the starter has to */
	int leaf;        /* its cgroup leaf, or -1 */
};

/** struct waiter_reply - the starter's answer to starter_order_waiter(). */
struct waiter_reply {
	int32_t pid;    /* in the keeper's pid namespace; 0 when no process came to be */
	struct err err; /* why not */
};

/**
 * starter_main() - the starter of a sandbox whose processes came from a template: a child of their parent, so that what it starts is in their Landlock
 * domain and they can signal each other. It has joined everything before it is executed. Return: never, in fact.
 */
int starter_main(void);

/** starter_hide_arguments() - where the arguments of this process are: starters blank theirs, because payloads can read the command line of a waiter. */
void starter_hide_arguments(int argc, char **argv);

/** starter_new() - clone the starter off the keeper; it makes a session keyring and joins the v1 groups of @cg. Context: the keeper, single-threaded. Return: 0, -EDQUOT when the user has all kernel keys that it may have, other -errno. */
int starter_new(struct starter *s, const struct cgroup *cg) attr_must_use;

/**
 * starter_clone_builder() - let the starter clone a builder with its namespaces.
 * @options: copied; its descriptors are passed.
 * @leaf: cgroup leaf (borrowed) or -1.
 *
 * Return: host pid of the builder, or -errno.
 */
int starter_clone_builder(
	struct starter *s, const struct builder_options *options, int leaf) attr_must_use;

/**
 * starter_join() - make the starter join all namespaces of @pidfd but the user and the cgroup namespace, which are for each program to join.
 * @shown: the limits that the builder was told; then it clones the placer too. NULL: the mounts are in place already. Return: 0 or -errno.
 */
int starter_join(struct starter *s, int pidfd, const struct cgroup_limits *shown) attr_must_use;

/**
 * starter_become_placer() - the same, but the starter becomes the placer instead of cloning it, and there is no starter any more: for what most probably never needs one.
 * Return: 0, or -errno, upon which it is still the starter.
 */
int starter_become_placer(
	struct starter *s, int pidfd, const struct cgroup_limits *shown) attr_must_use;

/** enum starter_place - placer_root(), placer_ahead() or placer_finish(). */
enum starter_place { STARTER_PLACE_ROOT, STARTER_PLACE_AHEAD, STARTER_PLACE_FINISH };

/** starter_place() - let the placer place @mounts, one for each target of @order. Return: 0 or an error. */
int starter_place(struct starter *s, enum starter_place what, const struct placement *order,
	const int *mounts, struct err *err) attr_must_use;

/** starter_placed() - no mount will be placed any more: the placer may end. Its end is a SIGCHLD. */
void starter_placed(struct starter *s);

/**
 * starter_order_waiter() - ask for a waiter; the answer arrives as a struct waiter_reply on @s->sock, in order.
 * @place: the same for all of one starter.
 * @own: what it alone gets (borrowed).
 */
int starter_order_waiter(struct starter *s, const struct launch_place *place,
	const struct waiter_fds *own) attr_must_use;

/**
 * starter_waiter_reply() - receive one answer.
 * @listener: replaced by the listener of confine_told(), which comes with the first answer of a starter.
 *
 * Return: 0, -EPIPE when the starter is gone, -errno.
 */
int starter_waiter_reply(
	struct starter *s, struct waiter_reply *reply, int *listener) attr_must_use;

/**
 * waiter_launch() - tell the waiter at the other end of @sock what it becomes. It says one byte just before it executes; behind that it answers with a struct err, or by closing its end: then the program runs
 * (or the waiter was killed, which its exit status says). Who closes without that byte was killed before, and has executed nothing.
 * @message: a struct launch_request and its text. @stdio: three descriptors (borrowed).
 *
 * Return: 0 or -errno.
 */
int waiter_launch(int sock, const struct buf *message, const int stdio[3]) attr_must_use;

#endif
