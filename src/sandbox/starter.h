/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/starter.h - the process that every process of a sandbox is cloned from.
 *
 * A child of the keeper. It sits in the sandbox's v1 groups (which it joins first of all), joins the sandbox's namespaces except the payload's user
 * namespace, and puts itself into one Landlock domain, so that all execs share it. It clones with CLONE_PARENT: the keeper is the parent of all
 * and collects their exit statuses. It parses nothing.
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
};

#define STARTER_SOCK_FD 3 /* descriptors of starter_main() */
#define STARTER_U2_FD   4

/**
 * starter_main() - the starter of a sandbox whose processes came from a template: a child of their parent, so that what it starts is in their Landlock
 * domain and they can signal each other. It has joined everything before it is executed. Return: never, in fact.
 */
int starter_main(void);

/** starter_new() - clone the starter off the keeper; it joins the v1 groups of @cg. Context: the keeper, single-threaded. Return: 0 or -errno. */
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
 * starter_join() - make the starter join all namespaces of @pidfd but the user namespace, and remember @u2.
 * @shown: the limits that the builder was told. Return: 0 or -errno.
 */
int starter_join(
	struct starter *s, int pidfd, int u2, const struct cgroup_limits *shown) attr_must_use;

/** enum starter_place - placer_root() or placer_finish(). */
enum starter_place { STARTER_PLACE_ROOT, STARTER_PLACE_FINISH };

/** starter_place() - let the starter place @mounts, one for each target of @order. Return: 0 or an error. */
int starter_place(struct starter *s, enum starter_place what, const struct placement *order,
	const int *mounts, struct err *err) attr_must_use;

/**
 * starter_launch_send() - ask for a program; the answer arrives as a struct launch_reply on @s->sock, in order.
 * @text: request->text_size bytes.
 * @stdio: three descriptors (borrowed). @leaf: cgroup leaf (borrowed) or -1.
 */
int starter_launch_send(struct starter *s, const struct launch_request *request, const char *text,
	const int stdio[3], int leaf) attr_must_use;

/** starter_launch_reply() - receive one answer. Return: 0, -EPIPE when the starter is gone, -errno. */
int starter_launch_reply(struct starter *s, struct launch_reply *reply) attr_must_use;

#endif
