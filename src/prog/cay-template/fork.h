/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay-template/fork.h - what the files of the restorer share.
 *
 * Life of one fork: fork_main() in T' -> opener_main() in a clone of it -> tree_clone() for each root -> become() in each process -> fork_reap() in T'.
 * The process that reads a thing decides its privilege: files that see the image (files.c, memory.c, become.c …) run inside U2 only.
 */
#ifndef CAY_TEMPLATE_FORK_H
#define CAY_TEMPLATE_FORK_H

#include "checkpoint/image.h"
#include "checkpoint/template_wire.h"
#include "prog/cay-template/bare.h"

#define FORK_TIMEOUT_S 20
#define FORK_SOCKET    3 /* of T', when the processes run */

/* Stages that all processes of a fork pass together. */
enum fork_stage {
	STAGE_CLONED,
	STAGE_GROUPED,
	STAGE_SETTLED,  /* who has had helpers that end early: they have ended, */
	STAGE_ADOPTING, /* who takes the children of those that end late is a subreaper, */
	STAGE_ADOPTED,  /* who has had such: they have ended. Only now others may be subreapers */
	STAGE_READY,
	STAGE_ARMED, /* the helper's: it watches whoever leaves with filters of its own, or is to be stopped, */
	STAGE_FIRST, /* who goes first, */
	STAGE_HELD,  /* the helper's: and has arrived in its program, where it stands still */
	STAGE_HEARD, /* of those who have stopped children */
	STAGE_GO,
	STAGE_LEFT,
	STAGE_COUNT
};

/**
 * struct fork_life - what the kernel does when a process dies that was not to: a robust list (get_robust_list(2)) of one lock, which its owner holds while it is being
 * made, and of one word that is only rung. life.c
 */
struct fork_life {
	uint64_t list; /* struct robust_list_head */
	int64_t offset;
	uint64_t pending;
	uint64_t next;  /* the lock's link: the end of the list */
	uint32_t owner; /* its pid; 0 = not begun, or ended */
	int32_t pid;
	uint32_t stopped; /* by a signal, as it was */
	uint32_t alone;   /* its creator has dropped the memory of it and of those behind it */
};

/** struct fork_shared - memory that all processes of one fork share; at WINDOW_SHARED. Every word is a futex. */
struct fork_shared {
	uint32_t stage; /* how many stages are over */
	uint32_t arrived[STAGE_COUNT];
	uint32_t expected[STAGE_COUNT]; /* the last to arrive wakes T' */
	uint32_t failed;
	uint32_t
		helper_lock; /* held by whoever asks the helper: between choosing a pid and taking it nobody else may */
	uint32_t asked;         /* of the helper: enum helper_task and a pid; 0 = nothing */
	int32_t asking;         /* process that asks */
	uint32_t asked_restart; /* HELPER_HOLD: of struct image_thread */
	uint32_t asked_n_calls; /* so many calls the thread makes when it has left the restorer, */
	uint64_t asked_calls;   /* where it has a struct residue_call of each */
	uint32_t answer;        /* 1 = done, 2 = it could not */
	int32_t refused;        /* of holding_wait() */
	uint32_t helped;        /* there is a helper */
	uint32_t helper_end;
	uint32_t bell;         /* always 0: rung when somebody dies */
	uint32_t loader;       /* how far it is: lazy.h */
	uint32_t loader_error; /* errno of its failure, 0 = none, or nothing is known */
	uint32_t n_first;
	struct template_first
		first[TEMPLATE_FIRST_MAX]; /* what was waited for, written by the loader */
	struct fork_life
		lives[]; /* of the processes of the plan, of the thread id helper, of the opener */
};

/** struct fork_context - one fork, copied with the address space. */
struct fork_context {
	struct template_fork order;
	int socket;                                                     /* to the fork's keeper */
	int init, u1, u2, timens, filter, keeper_cgroup, loader_cgroup; /* -1 = there is none */
	int pids,
		cgroups; /* namespaces by themselves, because init cannot be looked at from inside a Landlock domain */
	int program, starter; /* cay-keeper, and the socket over which it is told what to start */
	int last_pid; /* ns_last_pid of the host's /proc: what counts is who writes, not whose file it is */
	int next_ids
		[SYSV_KINDS]; /* shm_next_id and its like, of the sandbox's ipc namespace; -1 where the kernel has none, or nobody needs them */
	int tasks[8];
	int leaves[TEMPLATE_LEAVES_MAX];
	int slots[TEMPLATE_SLOTS_MAX];
};

/** the plan and the image of this template; set once by fill.c */
extern const struct plan *plan;
extern const struct image_header *image;
/** bytes of the image, whatever it says itself */
extern uint64_t image_size;
/** the fork that this process belongs to */
extern struct fork_context fork;

/* struct iovec and struct msghdr, which libc has */
struct bare_iovec {
	uint64_t base, length;
};

struct bare_message {
	const void *name;
	uint64_t name_length;
	struct bare_iovec *iov;
	uint64_t n_iov;
	void *control;
	uint64_t control_length;
	uint64_t flags;
};

/* struct clone_args of linux/sched.h, which wants libc's types */
struct bare_clone {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
		set_tid_size, cgroup;
};

static inline const struct plan_process *plan_processes(void)
{
	return (const struct plan_process *)(plan + 1);
}

static inline const struct plan_map *plan_maps(void)
{
	return (const struct plan_map *)(plan_processes() + plan->n_processes);
}

static inline const struct plan_copy *plan_copies(void)
{
	return (const struct plan_copy *)(plan_maps() + plan->n_maps);
}

static inline struct fork_shared *fork_shared(void)
{
	return (struct fork_shared *)WINDOW_SHARED;
}

static inline const void *image_at(enum image_table table, uint64_t index, uint64_t record)
{
	return (const char *)image + image->tables[table].offset + index * record;
}

#define IMAGE_ROW(type, table, index) ((const type *)image_at(table, index, sizeof(type)))

static inline const char *image_bytes(struct image_span span)
{
	return (const char *)image + image->tables[TABLE_BYTES].offset + span.offset;
}

/** fork_fail() - tell the keeper that @step failed with @rc (-errno) and end everything. */
BARE_NORETURN void fork_fail(const char *step, long rc);

/** fork_fail_of() - the same of process @pid of the sandbox. */
BARE_NORETURN void fork_fail_of(int32_t pid, const char *step, long rc);

/** fork_fail_by_name() - the same because of the file of @d, whose name is said, or the end of that. @why: TEMPLATE_LOCKED and its like. */
BARE_NORETURN void fork_fail_by_name(const struct image_description *d, long why);

/** fork_pass() - send @n bytes and descriptor @fd, which stays open here. */
void fork_pass(int socket, const void *bytes, uint64_t n, int fd);

/** fork_must() - fork_fail() when @rc is negative. Return: @rc. */
long fork_must(long rc, const char *step);

/** fork_arrive() - say that this process has come to the end of @stage, and wait for all the others. */
void fork_arrive(enum fork_stage stage);

/** fork_move_up() - @fd, which is closed, as the lowest that is free from @above on: T's own descriptors lie above those of the descriptions. Return: it. */
int fork_move_up(int fd, uint32_t above);

/** fork_await() - wait until all have come to the end of @stage. */
void fork_await(enum fork_stage stage);

/** fork_pass_stage() - the same without waiting. At STAGE_LEFT it is the last thing that a process of the fork says: it is a program's again. */
void fork_pass_stage(enum fork_stage stage);

/** futex_wait() - until *@word is no longer @value, or a second is over. */
void futex_wait(uint32_t *word, uint32_t value);
/** futex_wake() - wake all that wait for @word. */
void futex_wake(uint32_t *word);

/** life_helper() - index among the lives of the thread id helper. */
uint32_t life_helper(void);
/** life_opener() - index of the opener. */
uint32_t life_opener(void);

/** lives_make() - the shared memory, with room for all lives. In T', before it clones anybody. Return: 0 or -errno. */
long lives_make(void);

/**
 * life_begin() - if the caller, process @pid of the sandbox, dies from now on before life_end(), its life counts as lost and who waits for @bell, a word that is 0
 * then, is woken.
 */
void life_begin(uint32_t index, int32_t pid, uint32_t *bell);

/** life_end() - the caller has done what it had to, and has @robust_list from now on (0 = none). */
void life_end(uint64_t robust_list);

/** life_is_lost() - whether the process died before life_end(). */
bool life_is_lost(uint32_t index);

/** lives_lost() - how many of the plan's processes did; @ret_pid, unless NULL: one of them, the opener included. In T'. */
uint32_t lives_lost(int32_t *ret_pid);

/** lives_wait() - until *@word is no longer @value, somebody dies (the instant of the call excepted), or a second is over. In T'. */
void lives_wait(uint32_t *word, uint32_t value);

/** fork_main() - T'. Never returns. */
BARE_NORETURN void fork_main(void);

/** stack_begin() - run(@argument), which never returns, at the top of the stack: whatever is on it is lost. */
BARE_NORETURN void stack_begin(void (*run)(uint64_t argument), uint64_t argument);

/** tree_clone() - clone process @index of the plan from its creator (the caller). */
void tree_clone(uint32_t index);

/** opener_run() - make all file descriptions and put them where the plan wants them. In T'. Return: the opener, which stays until all are ready. */
long opener_run(void);

/** opener_end() - wait for the opener, which ends when STAGE_READY is over. In T'. */
void opener_end(long pid);

/** opener_next_id() - have T' choose the id of the next System V object of @kind. In the opener. */
void opener_next_id(int socket, enum image_sysv_kind kind, int32_t id);

/** number_text() - @number in decimal, without an end. Return: how many digits. */
int number_text(char text[10], uint32_t number);

/** write_number() - @number in decimal, to a file of /proc/sys. Return: as of write(2). */
long write_number(int fd, uint32_t number);

/** struct entry - struct linux_dirent64. */
struct entry {
	uint64_t inode, next; /* where the entry behind it is */
	uint16_t length;
	uint8_t kind;
	char name[];
};

/** nodes_make() - what was in the memory file systems. In the opener. */
void nodes_make(void);

/** owners_arm() - have descriptor @f of process @p, which is @d, say by a signal when it is ready, if it is the one that did. In @p. */
void owners_arm(
	const struct image_process *p, const struct image_fd *f, const struct image_description *d);

/** owners_set() - who gets these signals. In the opener, when all are there and nothing more is done to descriptions. */
void owners_set(void);

/** removed_directory() - one as @d, which nobody finds by a name any more. In the opener. Return: a descriptor to read it. */
int removed_directory(const struct image_description *d);

/** locks_take() - the locks that belong to the description @d, on @fd. In the opener. */
void locks_take(int fd, const struct image_description *d);

/** locks_become() - the locks that the process owns; no descriptor of theirs may be closed afterwards. */
void locks_become(const struct image_process *p);

/** sysv_is_planned() - may the image have System V objects? In T', which knows the plan alone. */
bool sysv_is_planned(void);

/** sysv_open_ids() - open what chooses the ids of the objects. @directory: /proc/sys/kernel of the host; -1 = there are no objects. In T', in the sandbox's ipc namespace. */
void sysv_open_ids(int directory);

/** sysv_make() - the objects of the ipc namespace, attached to where they must not end yet. In the opener. */
void sysv_make(int socket);

/** sysv_finish() - owners and modes; removes what ends with its last attachment. In the opener, when all have attached. */
void sysv_finish(void);

/** sysv_attach() - segment @s at @at, to be used as @access says (bits of mmap(2)). */
void sysv_attach(const struct image_sysv *s, uint64_t at, uint32_t access);

/** opener_confine() - enter U2 as the payload's root, with all its capabilities there. */
void opener_confine(void);

/** opener_have() - @fd is description @index, kept as opener_kept(@index) until the opener ends; T' gets it when all are made. Closes @fd. In the opener. */
void opener_have(int fd, uint32_t index);

/** opener_kept() - descriptor of description @index in the opener, once it has it. */
int opener_kept(uint32_t index);

/** opener_has_deeds() - will opener_as() have anything done by others? In the opener. */
bool opener_has_deeds(void);

/** opener_as() - do act(@argument) as the process @who would, as far as anything is known of it. In the opener. Return: of @act. */
long opener_as(const struct image_identity *who, long (*act)(void *argument), void *argument);

enum helper_task {
	HELPER_CHOOSE = 0, /* the next process or thread that is made in the sandbox gets the pid */
	HELPER_HOLD =
		1U
		<< 30, /* the thread does not run when it has left the restorer, but makes the calls that were asked for */
};

/** holding_begin() - trace thread @tid of the process that asks, with what that has asked for. In the helper, before holding_arm(). Return: 0 or -errno. */
long holding_begin(int32_t tid);
/** holding_anybody() - is anybody traced? */
bool holding_anybody(void);
/** holding_arm() - from here on each of their calls stops twice. They wait for STAGE_FIRST. */
void holding_arm(void);
/** holding_wait() - until all have left the restorer, have made their calls and stand still, stopped by a signal who was. Return: 0, or -errno of a call that was refused. */
long holding_wait(void);
/** holding_end() - let all go: they run, or stay stopped until they get SIGCONT. */
void holding_end(void);

/** stops_parents() - how many processes have stopped children. */
uint32_t stops_parents(void);
/** stops_concern() - has @process of the plan some? */
bool stops_concern(uint32_t process);
/** stops_tell() - say that @process is stopped. In the helper. */
void stops_tell(uint32_t process);
/** stops_hears() - is there something for stops_hear() to do? */
bool stops_hears(const struct image_process *p);
/** stops_hear() - wait until the children of @p that were stopped are, and leave of it what it had not heard; withdraws and passes STAGE_HEARD. The last that @p does before it leaves. */
void stops_hear(const struct image_process *p);

/** helper_is_wanted() - will a process of the plan ask the helper? In T'. */
bool helper_is_wanted(void);

/** helper_start() - unless it is there. In T', before any process of the plan is cloned. */
void helper_start(void);

/** helper_leave_number() - what comes next in the source comes next here, once nobody but the plan is cloned any more. In the helper; in the opener before it is confined. */
void helper_leave_number(void);

/** helper_reap() - wait for the helper if @pid, which has ended, is it. In T'. Return: it was. */
bool helper_reap(int32_t pid);

/** helper_finish() - nobody asks any more. In T', before STAGE_ARMED. */
void helper_finish(void);

/** helper_pass() - wait until the helper, if there is one, has come to the end of @stage, which is its own. In T'. */
void helper_pass(enum fork_stage stage);

/** helper_lock() - wait until nobody else asks. */
void helper_lock(void);
/** helper_unlock() - let others ask. */
void helper_unlock(void);

/** helper_ask() - have the helper do @task with @pid. The opener, or who holds the lock. */
void helper_ask(enum helper_task task, int32_t pid);

/** struct residue_call - a system call that a thread makes when it has left the restorer, by residue_calls. */
struct residue_call {
	uint64_t nr, arguments[3], told; /* told: a fifth argument */
};

/** residue_calls() - where the instructions lie that make calls one after the other, from what rbx points to on. */
uint64_t residue_calls(void);

/** filters_size() - how many bytes the calls take by which the threads of @p install the system call filters of its own. */
uint64_t filters_size(const struct image_process *p);

/** filters_lay() - write these to @at, which stays mapped. */
void filters_lay(const struct image_process *p, char *at);

/** filters_hold() - have the helper hold the threads of @p that must not run by themselves. @calls: of filters_lay(). */
void filters_hold(const struct image_process *p, uint64_t calls);

/** same_file_check() - end the fork, saying which it is, if @fd has another file than @d was of. In the opener. */
void same_file_check(int fd, const struct image_description *d);

/** files_open() - make every description. In the opener. */
void files_open(void);

/** files_seal() - the seals of memory files that let those go on writing who have mapped it before. In the opener, when all have. */
void files_seal(void);

/** terminals_make() - all terminals that have a master, with their modes and what waits in them. In the opener, before files_open(). */
void terminals_make(void);

/** terminals_master() - the master of the terminal of @d. Return: descriptor. */
int terminals_master(const struct image_description *d);

/** terminals_open() - a description of a terminal's slave. Return: descriptor. */
int terminals_open(const struct image_description *d);

/** terminals_end() - after files_open(): what would have been in its way. */
void terminals_end(void);

/** watches_make() - an inotify queue with its watches. Return: descriptor. */
int watches_make(const struct image_description *d);

/** sockets_make() - a socket that is not connected; it listens if it did. In the opener. Return: descriptor. */
int sockets_make(const struct image_description *d);

/** sockets_connect() - both ends of a connection; @peer NULL: the other end is gone, @ret[1] must be closed. In the opener. */
void sockets_connect(
	const struct image_description *d, const struct image_description *peer, int ret[2]);

/** sockets_pend() - @d connected to @listener, which exists and does not accept it yet. In the opener. Return: descriptor. */
int sockets_pend(const struct image_description *d, const struct image_description *listener);

/** sockets_leave() - close @fd, the other end of a connection @d whose own other end is not in the sandbox: it has ended, or, if it was outside, is reset. In the opener. */
void sockets_leave(int fd, const struct image_description *d);

/** sockets_bind() - give @fd, a unix socket, the @address, whose place in the files it takes. Return: 0 or -errno. */
long sockets_bind(int fd, struct image_span address);

/** sockets_enter() - go to where the name of the unix socket @d is seen from: a working directory, or another root. In the opener. */
void sockets_enter(const struct image_description *d);

/** sockets_return() - back to the root, where the opener is. */
void sockets_return(const struct image_description *d);

/** sockets_finish() - what waited in unix sockets, and what must come behind that; when all descriptions are there. In the opener. */
void sockets_finish(void);

/** queues_fill() - have what waited in unix and UDP sockets wait again. In the opener. */
void queues_fill(void);

/** datagrams_fill() - have @p wait again in the UDP socket of description @receiver; lost when its sender was outside the sandbox. In the opener. */
void datagrams_fill(uint32_t receiver, const struct image_packet *p);

/** become() - turn the calling process into process @index of the image. Never returns. */
BARE_NORETURN void become(uint32_t index);

/** limits_end() - the limits of processes, memory, files and waiting signals (with timers) of @p, when all of these are there: a program may have forbidden itself to have more. */
void limits_end(const struct image_process *p);

/** memory_become() - the address space of @p but for the window. */
void memory_become(const struct image_process *p, const struct plan_process *planned);
/** memory_describe() - brk, arguments, executable. */
void memory_describe(const struct image_process *p);
/** files_become() - descriptors of @p. */
void files_become(const struct image_process *p);
/** files_end() - those that are opened when its threads are there (image_opened_late()). */
void files_end(const struct image_process *p);

/** creds_leave_keyring() - a session keyring is inherited: without this the payload could read the template's. One for all processes: each counts against what a user may have. */
void creds_leave_keyring(void);

/** creds_become() - ids, filter, capabilities of @p; the last steps that need any privilege. */
void creds_become(const struct image_process *p);

/** signals_become() - dispositions, timers, queued signals; all blocked. */
void signals_become(const struct image_process *p);
/** signals_queue_again() - what waited of signal @sig for @p and its first thread. In it. */
void signals_queue_again(const struct image_process *p, int sig);
/** signals_queue() - the signals that wait for one thread. In it. */
void signals_queue(const struct image_thread *t);

/** timers_prepare() - have the kernel take the numbers of timers from us, where they are high. Before the sandbox's filter, which lets nobody begin that. */
void timers_prepare(const struct image_process *p);

/** timers_become() - the POSIX timers of @p, with their numbers. After its threads were made. */
void timers_become(const struct image_process *p);

/** threads_withdraw() - close the way to the keeper, who is told of no failure any more, and unmap the image, which has what was taken of all processes: before any program runs, which may look at the caller, and could speak in the name of T'. */
void threads_withdraw(void);

/** threads_become() - create the other threads, wait for the others' and leave. Never returns. */
BARE_NORETURN void threads_become(const struct image_process *p);

#endif
