/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: events/process_source.h - process.started, process.exec and process.ended events from the kernel's proc connector.
 *
 * A process belongs to the exec of its parent. Children of a keeper (and of the parent of processes that came from a template) belong to nothing until the keeper has said which exec (or init) a pid is: what they
 * do meanwhile is held back. Because the kernel reports a fork before the child runs and an exit before the parent can reap, draining the
 * connector before handling a keeper's message keeps the order: started before exec.started's successors, ended before exec.ended.
 */
#ifndef CAY_EVENTS_PROCESS_SOURCE_H
#define CAY_EVENTS_PROCESS_SOURCE_H

#include "events/journal.h"
#include "sys/proc_connector.h"

struct process_source;

/** process_source_new() - @journal is borrowed; @connector may be closed (fd -1): then nothing is ever reported. */
struct process_source *process_source_new(
	struct journal *journal, const struct proc_connector *connector);

/** process_source_free() - NULL is allowed. */
void process_source_free(struct process_source *ps);

/** process_source_fd() - readable when a program was executed, which process_source_drain() should see soon; -1 when there is no connector. */
int process_source_fd(const struct process_source *ps);

/** process_source_drain() - handle all events that wait. */
void process_source_drain(struct process_source *ps);

/** process_source_follow() - the children of @keeper belong to @sandbox. */
void process_source_follow(struct process_source *ps, const char *sandbox, pid_t keeper);

/** process_source_template() - @template, which begins to run or has ended, forks parents of processes: what is below one of them is held back until it is claimed. */
void process_source_template(struct process_source *ps, pid_t template, bool runs);

/** process_source_claim() - the children of @parent, forked by a template, belong to @sandbox too. */
void process_source_claim(struct process_source *ps, const char *sandbox, pid_t parent);

/** process_source_settle() - all execs that came with a claimed parent are bound: what else it brought and left to the init belongs to no exec. */
void process_source_settle(struct process_source *ps, const char *sandbox);

/** process_source_epoch() - epoch of @sandbox for events from now on. */
void process_source_epoch(struct process_source *ps, const char *sandbox, uint64_t epoch);

/** process_source_bind() - child @pid of the sandbox's keeper is @exec, or its init when NULL. */
void process_source_bind(
	struct process_source *ps, const char *sandbox, pid_t pid, const char *exec);

/** process_source_forget() - the sandbox's processes and its keeper are gone. */
void process_source_forget(struct process_source *ps, const char *sandbox);

#endif
