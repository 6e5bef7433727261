/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/exec.h - one program run in a sandbox: descriptors, output ring, deadline, final status.
 *
 *   STARTING --exec_started()--> RUNNING --exec_ended()--> ENDED
 *       \--------exec_failed()-----------------------------> (freed by the keeper)
 *
 * (1) The final status comes from waitid() of our own child and from the kernel's counters, never from what a client or the payload says.
 * (2) Output is read until the pipe is empty before the status is given out; a descendant may go on writing afterwards.
 * (3) While a client is attached nothing that it has not been sent is forgotten: the pipe is not read instead.
 */
#ifndef CAY_SANDBOX_EXEC_H
#define CAY_SANDBOX_EXEC_H

#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"
#include "sandbox/box.h"
#include "sandbox/ring.h"
#include "sandbox/spill.h"
#include <jansson.h>

#define EXEC_RING_DEFAULT (1U << 20)
#define EXEC_RING_MAX     (64U << 20)
#define EXEC_STDIN_MAX    (4U << 20)
#define EXEC_LEAF_SIZE    16

enum exec_state { EXEC_STARTING, EXEC_RUNNING, EXEC_ENDED };

/** struct exec_counters - of the kernel, for all programs of the sandbox together. */
struct exec_counters {
	uint64_t oom_kills, pids_refused;
};

struct exec {
	struct list node;
	char id[ID_LEN + 1];
	uint16_t channel;
	enum exec_state state;
	char leaf[EXEC_LEAF_SIZE]; /* cgroup leaf below box; "" until it has one */
	uint64_t cgroup;           /* id of that leaf, 0 = none */
	pid_t pid;                 /* host pid; 0 before EXEC_RUNNING */
	bool tty;
	size_t watched; /* first of its three places in this round of the keeper's poll; 0 = none */
	int in, out,
		err; /* our ends; for a terminal all data goes through @out and @in is -1; -1 = closed */
	struct ring ring;
	uint64_t
		shown; /* offset of its output behind what somebody was sent, here or before it went on from an instant */
	struct spill spill; /* all its output on disk, when it was asked for */
	bool spill_told;    /* that the writing has ended */
	struct buf input;   /* bytes for stdin that did not fit into the pipe yet */
	uint64_t
		input_taken; /* bytes of input that the program's pipe took, or that nobody will read */
	uint64_t
		input_dropped; /* of these, those that nobody will read, as far as this keeper knows */
	bool input_closed;     /* close @in when @input is empty */
	uint64_t deadline_ns; /* CLOCK_MONOTONIC, 0 = none */
	bool leaf_left;       /* it has ended, its group is still to be removed */
	bool last;            /* no other program is expected */
	bool tell_changed;    /* say at its end when no cow mount has changed */
	bool timed_out, killed;
	uint64_t
		uncounted_bytes; /* that its sandbox held when it was killed for it (keeper_uncounted.c); 0 = it was not */
	bool touched; /* by somebody who did not wait for its start: input, an end of that, a size, a kill */
	const char
		*lost; /* why its end says nothing about the program; NULL = it does. Not owned */
	uint64_t started_wall_ns;
	struct exec_counters before; /* at the start */
	int wait_status;             /* of waitpid(), once ended */
	json_t *status;              /* final status object, once ended */
};

/**
 * exec_new() - check the request and make descriptors; sends nothing yet.
 * @request: the `exec` request (docs/design/0001); borrowed.
 * @ret_stdio: on success three descriptors for the program, owned by the caller.
 * Return: the exec (exec_free()), or NULL with @err filled.
 */
struct exec *exec_new(const struct box *box, const json_t *request, int ret_stdio[3],
	struct err *err) attr_must_use;

/**
 * exec_pipe() - a pipe of a program's standard streams, which root inside owns and everybody there may open once more (/dev/stderr): whose descriptors one may look at the kernel
 * judges before (proc(5)). @ends: to read, to write; also set when it fails behind pipe2(2). Return: 0 or -errno.
 */
int exec_pipe(const struct box *box, int ends[2]) attr_must_use;

/** exec_blank() - an exec in EXEC_STARTING without descriptors, with a ring of @ring_max bytes; the caller fills in the rest. */
struct exec *exec_blank(size_t ring_max) attr_must_use;

/** exec_count() - the counters as they are now. */
void exec_count(const struct box *box, struct exec_counters *ret);

/**
 * exec_launch() - tell the waiter at the other end of @sock to become the program.
 * @before: the counters, where they are known; NULL: they are read.
 * @stdio: the caller's; what becomes the program has its own.
 * Return: 0 or an error; -EPIPE: nobody is there.
 */
int exec_launch(struct exec *e, const struct box *box, int sock, const json_t *request,
	const struct exec_counters *before, const int stdio[3], struct err *err) attr_must_use;

/** exec_started() - the program runs. */
void exec_started(struct exec *e, pid_t pid);

/** exec_read() - read what is there from @fd (one of ours) into the ring (and onto disk), leaving all from @keep on. true when something changed. */
bool exec_read(struct exec *e, struct box *box, int *fd, enum ring_stream stream, uint64_t keep);

/** exec_drain() - read all output that is there now, whatever is forgotten for it. */
void exec_drain(struct exec *e, struct box *box);

/** exec_save() - what the ring holds goes to disk behind what is there already: it outlives us. Return: 0 or -errno. */
int exec_save(struct exec *e, const struct box *box) attr_must_use;

/** exec_feed() - queue bytes for stdin; -ENOBUFS when too much waits already. */
int exec_feed(struct exec *e, const void *bytes, size_t n) attr_must_use;

/** exec_feed_end() - no more input will come. */
void exec_feed_end(struct exec *e);

/** exec_write() - write waiting input as far as the pipe takes it. */
void exec_write(struct exec *e);

/** exec_signal() - send @sig to the program; to its whole group what keyboards send (a terminal: everything to its foreground group, if that lives). 0 or -errno. */
int exec_signal(struct exec *e, const struct box *box, int sig) attr_must_use;

/** exec_kill() - SIGKILL the program and all its descendants that are still in its group. */
void exec_kill(struct exec *e, const struct box *box);

/** exec_ended() - the program was reaped: work out the final status. @wait_status: from waitpid(). */
void exec_ended(struct exec *e, const struct box *box, int wait_status, uint64_t cpu_us);

/** exec_describe() - object for hello and status replies; new reference. */
json_t *exec_describe(const struct exec *e) attr_must_use;

/** exec_free() - release; NULL is fine. */
void exec_free(struct exec *e);

#endif
