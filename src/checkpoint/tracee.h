/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/tracee.h - stopped processes, and system calls made in them.
 *
 * All calls must come from one thread: the kernel ties ptrace to it. A tracee stays stopped between calls. PTRACE_O_EXITKILL holds from the first changed
 * register until the registers are back: if the tracer dies in between, the process dies rather than going on wrong.
 */
#ifndef CAY_CHECKPOINT_TRACEE_H
#define CAY_CHECKPOINT_TRACEE_H

#include "base/attr.h"
#include "base/buf.h"
#include "base/clock.h"
#include "checkpoint/filter_run.h"
#include "checkpoint/mappings.h"
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>

#define TRACEE_XSAVE_MAX  14336U
#define TRACEE_ANSWER_MAX 32U
#define TRACEE_STOP_NS    (500 * NS_PER_MS) /* of tracee_hurry() */
/* of whom calls are made in: what a call makes is ours to trace, with the same options */
#define TRACEE_OPTIONS \
	(PTRACE_O_EXITKILL | PTRACE_O_TRACEFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD)

#ifndef PTRACE_EVENT_STOP
#define PTRACE_EVENT_STOP 128
#endif

/** struct tracee_thread - one stopped thread. */
struct tracee_thread {
	pid_t host;                        /* tid in the host's pid namespace */
	pid_t inner;                       /* and inside */
	struct user_regs_struct registers; /* with which it goes on */
	uint64_t mask;
	uint64_t waiting; /* signals, for it or for its process, when it had stopped */
	uint64_t rseq;    /* its area for restartable sequences, 0 = it has none */
	uint32_t rseq_size, rseq_signature;
	uint32_t filters; /* system call filters, the sandbox's own among them */
	const struct filter_program *
		own; /* those that count for what it does for us: what they refuse is not tried; borrowed */
	uint32_t n_own;
	bool no_new_privs;
	uint64_t identity; /* of its ids and capabilities: equal where these are */
	bool traps; /* its program catches or ignores SIGTRAP, or one waits for it, or a signal of a fault does */
	bool again; /* they are not those with which it was stopped: its call is made again, unless a handler comes first */
	bool changed; /* registers are not its own now */
	bool runs;    /* for us, or is about to or has just; else it is stopped */
	int signal;   /* of tracee_give_up(): on its way to it */
	pid_t child;  /* that the last call made; in the host's pid namespace */
	uint64_t end; /* where it is going, how, and by how many more stops of calls */
	int how, stops;
};

/** struct tracee - one process, all its threads stopped. The first thread is the leader. */
struct tracee {
	pid_t host, inner;
	bool zombie;
	bool headless; /* its first thread has ended, and others have not: also ->zombie, and ->threads are the others */
	bool stopped; /* by a signal, before it was by us */
	struct tracee_thread *threads;
	size_t n_threads;
	struct buf status; /* text of /proc/PID/status, since it stands still */
	uint64_t vdso;     /* as of tracee_mapped(), 0 = not known yet, or none */
	size_t vdso_size;
	uint64_t syscall_at; /* where an instruction for that is: tracee_call.c */
	uint64_t scratch;    /* memory in it for calls and what they answer, 0 = none yet */
	bool no_programs;    /* which must not be executed */
	bool opened;         /* by tracee_open(), */
	uint32_t dumpable;   /* which was this before (prctl(2)) */
	int proc;            /* /proc/PID */
};

/**
 * tracee_stop() - seize process @host and stop all its threads; a zombie is only noted.
 * @t: filled; needs tracee_release() in any case. Return: 0 or -errno. Context: the process's cgroup is frozen, so that no thread appears.
 */
int tracee_stop(struct tracee *t, pid_t host) attr_must_use;

/**
 * tracee_hurry() - from now on (@on) a stop that does not come within half a second fails with -ETIMEDOUT: the parent of vfork() stops only when its child,
 * which is frozen, has executed a program.
 */
void tracee_hurry(bool on);

/** tracee_expire() - in a hurry: a stop that has not come yet fails at once, until tracee_hurry(). */
void tracee_expire(void);

/** tracee_count_threads() - how many the process has now, whether @t knows them or not. Return: 0 when it has ended. */
size_t tracee_count_threads(const struct tracee *t);

/** tracee_watch() - look at process @host without stopping it: only ->proc, ->inner, ->zombie and ->status are set. As above. */
int tracee_watch(struct tracee *t, pid_t host) attr_must_use;

/** tracee_watch_threads() - list the threads of @t, which is only watched, with their numbers and ->filters, until tracee_forget_threads(). Return: 0 or -errno. */
int tracee_watch_threads(struct tracee *t) attr_must_use;

/** tracee_forget_threads() - of one that is only watched. */
void tracee_forget_threads(struct tracee *t);

/** tracee_take_over() - every thread that is stopped from now on was stopped by seizer_stop(), in this process, before it executed this program. */
void tracee_take_over(void);

/**
 * tracee_call() - make system call @nr in thread @i of @t. Return: its result, also when negative; -EACCES when its filters would refuse it; -ESRCH when the thread is gone or the process only watched. Registers
 * that a program has changed itself since are not seen; a signal waits until the thread is let go, and a stop takes place then.
 */
long tracee_call(struct tracee *t, size_t i, long nr, const uint64_t arguments[6]);

/** tracee_may_call() - would the filters that count for thread @i of @t let it make that call? */
bool tracee_may_call(const struct tracee *t, size_t i, long nr, const uint64_t arguments[6]);

#define TRACEE_CALL(t, i, nr, ...) tracee_call(t, i, nr, (const uint64_t[6]){ __VA_ARGS__ })

/** tracee_mapped() - @maps are the mappings of @t, read since it stands still: they need not be read once more to find where calls can be made. */
void tracee_mapped(struct tracee *t, const struct mappings *maps);

/** struct tracee_question - a system call that only the process itself can make. */
struct tracee_question {
	long nr;
	uint64_t arguments[6];
	unsigned int into; /* 1 + the argument that is to point to ->answer, 0 = none does */
	bool known;        /* the answer is there already: it is not asked */
	long result;
	unsigned char answer[TRACEE_ANSWER_MAX]; /* what the call has written there */
};

/** struct tracee_asked - the questions for one thread. */
struct tracee_asked {
	struct tracee *t;
	size_t thread;
	struct tracee_question *questions;
	size_t n;
	size_t done, now, row, rows; /* ours */
};

/**
 * tracee_ask() - put its questions to each of @n threads, to all at the same time: each makes all of its calls before it stops again. In the order of @all and of the
 * questions within a thread; what different threads do has no order.
 *
 * Return: 0 with all results, also when these are negative; -errno of the first thread that could not be asked.
 */
int tracee_ask(struct tracee_asked *all, size_t n) attr_must_use;

#define TRACEE_RESULTS 4096U /* bytes of them */

#define TRACEE_MEMORY 32768U /* bytes that are mapped in a process that is asked */

/** tracee_scratch() - make the memory for results. Return: 0 or -errno. */
int tracee_scratch(struct tracee *t) attr_must_use;

/** tracee_scratch_end() - give up the memory for results of all @n, at the same time. Who cannot, because it is gone, need not. */
void tracee_scratch_end(struct tracee *const *all, size_t n);

/**
 * tracee_is_closed() - may the caller not look at @t, which is watched or stopped? So it is with a restored process that is not dumpable (prctl(2)): its memory belongs to the
 * user namespace of the template.
 */
bool tracee_is_closed(const struct tracee *t);

/**
 * tracee_open() - make a closed process, which somebody has seized who may look at it (tracee_take_over()), dumpable until tracee_close(). Of others nothing is done.
 * Return: 0; -ENOEXEC when there is no way to make a call in it; -errno. Context: whoever else could look at it stands still until tracee_close().
 */
int tracee_open(struct tracee *t) attr_must_use;

/** tracee_close() - as it was. Idempotent. Return: 0; or an error: it is open still. */
int tracee_close(struct tracee *t) attr_must_use;

/** tracee_read() - copy @n bytes at @address of @t. Return: 0 or -errno. */
int tracee_read(const struct tracee *t, uint64_t address, void *to, size_t n) attr_must_use;

/** tracee_write() - the other way. */
int tracee_write(
	const struct tracee *t, uint64_t address, const void *from, size_t n) attr_must_use;

/** struct tracee_pair - a process, and its copy. */
struct tracee_pair {
	struct tracee *t, *twin;
	struct tracee helper; /* ours, as what follows */
	bool programs, begun,
		runs; /* @t is given programs, was, and has not come to the end of its own */
	int rc;
};

/**
 * tracee_twins() - have each ->t make a copy-on-write copy of itself, which stays stopped: a child of the pid namespace's init (unless a subreaper stands above it), in a
 * session of its own, without descriptors, traced by the caller, and killed when the caller ends. None has a child more than before, and no child has ended.
 * ->twin: on success a stopped process with one thread; tracee_end() it.
 *
 * Return: 0; or -errno (-EAGAIN: a limit of processes; -ENOMEM; -EACCES: the filters of one) with all as they were, without any twin. Context: between tracee_stop() and tracee_release().
 */
int tracee_twins(struct tracee_pair *all, size_t n) attr_must_use;

/** tracee_end() - kill a twin and wait for its end. Idempotent. */
void tracee_end(struct tracee *t);

/** enum tracee_restart - what the kernel says to itself, as an -errno, of a call that a stop has interrupted (include/linux/errno.h): when it makes that again. */
enum tracee_restart {
	RESTART_SYS = 512,
	RESTART_NO_INTR = 513,
	RESTART_NO_HAND = 514,
	RESTART_BLOCK = 516
};

/** tracee_calm() - have whoever of @t runs for us stop, also in the middle of a call that hangs; within about a second each, or not. */
void tracee_calm(struct tracee *t);

/**
 * tracee_give_up() - tracee_release() when a call in it may hang, or anything else has been left in the middle: whoever cannot be stopped within a second or so stays as it is, and
 * ends with the caller if its registers were changed (EXITKILL). Nothing is freed.
 *
 * Return: how many threads could not be let go.
 */
unsigned int tracee_give_up(struct tracee *t);

/** tracee_release() - put everything back as it was and let go. Idempotent. */
void tracee_release(struct tracee *t);

#endif
