/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/capturer.h - a keeper's side of a capture: it starts the dumper inside U1 and connects it to a template.
 *
 *   capture_begin() -> capture_prepare() -> where programs have filters capture_suspend() -> capture_stop() (cgroup frozen) -> capture_look() (thawed; all processes stopped by ptrace) -> capture_twins() -> … -> capture_release()
 *   -> (c->dumper readable) capture_filled() -> capture_end_twins() -> capture_end()
 */
#ifndef CAY_CHECKPOINT_CAPTURER_H
#define CAY_CHECKPOINT_CAPTURER_H

#include "checkpoint/dump_wire.h"
#include <sys/types.h>

/** struct capture - one capture under way; CAPTURE_INIT when there is none. */
struct capture {
	pid_t pid; /* of the dumper; 0 = none */
	int dumper, template;
	bool changing; /* the dumper may have changed registers that it has not put back yet */
	bool released; /* the processes go on */
	bool filtered; /* programs have system call filters of their own */
	int32_t closed; /* process that only the host's root may look at, as seen inside; 0 = there is none */
	char closed_name[16];
	bool suspended; /* the dumper stops all before it is executed, while it may still suspend these */
	bool filled; /* and their memory is in the template: the dumper ends by itself */
};

#define CAPTURE_INIT \
	{ \
		.dumper = -1, .template = -1 \
	}

/** struct capture_place - where the sandbox is; borrowed. */
struct capture_place {
	int u2;                    /* the payload's user namespace */
	bool enter_u1;             /* root mode: U1 is not the caller's own */
	const char *template_path; /* socket of the template; NULL = nothing is copied */
};

/** capture_enter_u1() - become root of U1, where that is not where we are: who may trace everything of the sandbox, and nothing else. Return: 0 or -errno. */
int capture_enter_u1(const struct capture_place *place) attr_must_use;

/** capture_close_others() - close all but @keep, which it sorts, and the standard ones: a copy of the keeper must not keep open what that closes meanwhile. */
void capture_close_others(int *keep, size_t n);

/** capture_begin() - connect to the template, start the dumper. Nothing is stopped. Return: 0 or an error. */
int capture_begin(
	struct capture *c, const struct capture_place *place, struct err *err) attr_must_use;

/** capture_prepare() - have done for the processes of @order what can be done while they run. Return: 0 or an error. */
int capture_prepare(struct capture *c, struct dump_order *order, struct err *err) attr_must_use;

/** capture_forget() - it is not to be, after all: end the dumper. Before capture_stop(). Idempotent. */
void capture_forget(struct capture *c);

/** capture_suspend() - where c->filtered: start a dumper that reads filters and makes its calls without them. Between capture_prepare() and capture_stop(). Return: 0 or an error. Context: FEATURE_PROGRAM_FILTERS. */
int capture_suspend(
	struct capture *c, const struct capture_place *place, struct err *err) attr_must_use;

/** capture_stop() - stop every process of @order. @masters: of its terminals, in the order of their slots; borrowed. Context: their cgroup is frozen. Return: 0 or an error; after one nothing is stopped any more. */
int capture_stop(struct capture *c, struct dump_order *order, const int *masters, size_t n_masters,
	struct err *err) attr_must_use;

/** capture_look() - look at all, make twins or copy the memory. @ret: figures. @ret_numbers: a file as of %DUMP_NUMBERS_MAX, the caller's, or -1. Context: the cgroup is thawed. Return: 0 with all processes stopped; -ETIMEDOUT without an error when something hangs, and they stay so until capture_give_up(); or an error, after which none need be. */
int capture_look(struct capture *c, struct dump_report *ret, int *ret_numbers,
	struct err *err) attr_must_use;

/** capture_give_up() - capture_look() hangs: let all go that can be. Twins stay until capture_end(). Return: an error. Context: blocks until they go, 30 s at the most. */
int capture_give_up(struct capture *c, struct err *err);

/** capture_died() - is a capture under way whose dumper has ended? Then nobody lets the processes go. */
bool capture_died(const struct capture *c);

/** capture_twins() - name the twins, which are all that may be copied once the processes go on. @pids: in the host's pid namespace. Return: 0 or -errno. */
int capture_twins(const struct capture *c, const int32_t *pids, size_t n) attr_must_use;

/** capture_release() - let all go. @ret: figures. Return: 0, or an error: then too nothing is stopped any more. */
int capture_release(struct capture *c, struct dump_report *ret, struct err *err) attr_must_use;

/** capture_filled() - the memory is in the template, or why not; twins are still there. @ret: figures. */
int capture_filled(struct capture *c, struct dump_report *ret, struct err *err) attr_must_use;

/** capture_end_twins() - end the twins, if their memory is in the template: it is free when this returns, and they count as processes until capture_end(). Context: blocks while that takes. */
void capture_end_twins(const struct capture *c);

/**
 * capture_end() - let all go, if that is still to do, and wait for the end of the dumper and of its twins. Idempotent.
 * Return: 0, or -EPIPE when the dumper ended after it had begun to change registers: what it traced is killed or not as it was.
 */
int capture_end(struct capture *c) attr_must_use;

/** capture_examine() - what would a capture of @order refuse just now? @masters: as for capture_stop(). Each process is stopped for a moment, alone. @out: filled. Blocks some ms. Return: 0 or an error. */
int capture_examine(const struct capture_place *place, struct dump_order *order, const int *masters,
	size_t n_masters, struct dump_examination *out, struct err *err) attr_must_use;

/**
 * capture_settle() - have the calls of @order's processes that the freezer has interrupted made again when they go on, as behind a capture. Who cannot be stopped in time is told EINTR.
 * Blocks some ms, seconds at most. Return: 0 or an error. Context: their cgroup is frozen, and stays so.
 */
int capture_settle(
	const struct capture_place *place, struct dump_order *order, struct err *err) attr_must_use;

/** template_path() - path of the socket of template @id below runtime directory @run. */
void template_path(const char *run, const char *id, char *path, size_t size);

/** template_connect() - to the template whose socket is @path. Return: a descriptor, or an error: it has ended. */
int template_connect(const char *path, struct err *err) attr_must_use;

#endif
