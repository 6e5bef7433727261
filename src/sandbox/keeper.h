/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/keeper.h - the process that holds one sandbox: one thread, one poll loop, until the sandbox ends.
 *
 * Life: keeper_main() answers the verbs of docs/design/0001 on the socket that cay-spawn gave it and on RUN/keepers/ID.sock. It outlives cayd:
 * events wait until a new cayd says `adopt` and acknowledges them.
 *
 *   NEW --prepare--> READY --start--> RUNNING <--freeze/thaw--> PAUSED
 *                      \________________\______________________\----> STOPPING (the process ends)
 */
#ifndef CAY_SANDBOX_KEEPER_H
#define CAY_SANDBOX_KEEPER_H

#include "base/clock.h"
#include "base/list.h"
#include "checkpoint/asker.h"
#include "checkpoint/capturer.h"
#include "checkpoint/first.h"
#include "codec/frame.h"
#include "sandbox/answer_writer.h"
#include "sandbox/box.h"
#include "sandbox/exec.h"
#include "sandbox/learned.h"
#include "sandbox/meter.h"
#include "sandbox/process.h"
#include "sandbox/ration.h"
#include <jansson.h>
#include <limits.h>
#include <linux/seccomp.h>

#define KEEPER_EVENTS_MAX 65536 /* unacknowledged; what comes later is counted as lost */

#define KEEPER_HOLD_NS \
	(60 * NS_PER_S) /* so long output is kept for a client whose server went away */

#define KEEPER_EARLY_MAX 256 /* launches under way at once, roughly */

enum keeper_state {
	KEEPER_NEW,
	KEEPER_READY,
	KEEPER_RUNNING,
	KEEPER_PAUSED,
	KEEPER_STOPPING,
	KEEPER_STATE_COUNT
};

/** struct attachment - one client of one exec on one connection. */
struct attachment {
	struct list node;
	uint16_t channel;
	uint64_t next;   /* offset of the next byte to send */
	uint64_t credit; /* bytes that may still be sent; UINT64_MAX = no flow control asked for */
	uint64_t window; /* credit at the beginning */
	uint64_t input_told; /* bytes of input that the client knows were taken */
	bool hold; /* what the client has not acknowledged is kept for it, also when the connection ends */
	uint64_t
		expires_ns; /* CLOCK_MONOTONIC: its connection has ended, it is held for who comes back; 0 = connected */
};

/** struct conn - one connection of cayd. */
struct conn {
	struct list node;
	int fds[HELD_MAX]; /* that came with what was read last */
	size_t n_fds;
	int fd;
	struct buf in, out;
	struct list attachments;
	bool primary; /* gets the events */
	bool broken;  /* close at the end of this round */
	bool forgets; /* the input that came from it: what a resumed program has not had is not sent again */
	bool handover; /* give it to the gateway when all that waits has been written */
};

/** struct waiter - a process that will become a program; see keeper_waiters.c. */
struct waiter {
	struct list node;
	pid_t pid;                 /* host pid; 0: the starter has not answered yet */
	int sock;                  /* SOCK_SEQPACKET; -1: it has closed its end */
	bool gone;                 /* it will become nothing: its end is waited for */
	bool executes;             /* it was about to execute when it was last heard of */
	size_t watched;            /* its place in this round of the keeper's poll; 0 = none */
	char leaf[EXEC_LEAF_SIZE]; /* its cgroup leaf while it has no exec; "" = none */
	uint64_t cgroup;           /* id of that leaf, 0 = none */
	bool first; /* no program had run when it was made: @before holds until one does */
	struct exec_counters before; /* of @first */
	struct exec *exec;           /* what it becomes; NULL: a spare */
	struct conn *conn;           /* who asked for that; NULL when it went away */
	json_int_t request;
	json_t *asked;      /* that request */
	unsigned int tries; /* waiters that were killed before they executed anything of it */
	bool again;         /* this one was, too: keeper_try_again() */
};

/** struct start_request - who wants a program. */
struct start_request {
	struct conn *conn; /* NULL: it went away */
	json_int_t id;
	unsigned int tries; /* waiter.tries */
};

/** struct death - a reaped child. */
struct death {
	pid_t pid; /* 0 = empty entry */
	int wait_status;
	uint64_t cpu_us;
};

/** struct keeper_gateway - the process that is the sandbox's way out. */
struct keeper_gateway {
	pid_t pid;              /* 0 = none */
	int sock;               /* gateway/link.h; -1 = none runs */
	uint64_t started_ns;    /* CLOCK_MONOTONIC */
	uint64_t not_before_ns; /* the next is not started earlier */
	unsigned int deaths;    /* in quick succession */
	uint64_t search_from_ns,
		searched_ns; /* when the present second of %LINK_WHICH began, and how much of it went into the search */
};

#define KEEPER_TOLD_KINDS 128

/** struct told_kind - one exec's refused calls of one kind, within a second; see keeper_told.c. */
struct told_kind {
	const char *protocol; /* static; NULL: this one is empty */
	char exec[ID_LEN + 1];
	uint32_t thread;    /* who made the first */
	struct process who; /* and its process; pid 0 = it could not be told */
	bool several;       /* another thread did so too */
	uint64_t more;      /* since the event */
	uint64_t until_ns;  /* CLOCK_MONOTONIC */
};

/** enum keeper_listener - of whose refused system calls the kernel tells. */
enum keeper_listener {
	LISTENER_STARTED, /* programs that the starter starts */
	LISTENER_FORKED,  /* processes that came from a template */
	LISTENERS
};

#define KEEPER_ASKERS 4

/** struct keeper_asker - a process of ours that asks a thread what it cannot be asked when its filter is there; see keeper_ask.c. */
struct keeper_asker {
	pid_t pid; /* 0 = it has ended */
	int sock;
	int32_t tid;  /* whom, until it has come with its call again; 0 = nobody */
	int listener; /* where that waited when it began; only to be compared, or tried */
	struct seccomp_notif notice;
	bool answered;
	struct asker_answer answer;
};

/** struct keeper_told - system calls that the kernel tells of: those that are refused, and those by which filters are installed. */
struct keeper_told {
	int listeners[LISTENERS]; /* -1 = there is none */
	struct told_kind kinds[KEEPER_TOLD_KINDS];
	size_t n_kinds;           /* that are not empty */
	uint64_t untold;          /* for which there was no room */
	uint64_t untold_until_ns; /* when they are told, as a number */
	uint64_t second_ns,
		spent_ns; /* when the present second began, and our time that went into answers since */
};

/** struct keeper_confined - control groups in which somebody has entered a Landlock domain of its own. */
struct keeper_confined {
	char leaves[TEMPLATE_LEAVES_MAX][DUMP_LEAF_SIZE];
	size_t n;
	bool forgot; /* and others, for which there was no room */
};

/** struct keeper_apart - filters that programs have installed for one of several threads; see keeper_ration.c. */
struct keeper_apart {
	struct keeper_apart_of {
		int32_t process;
		uint32_t n; /* 0 = this one is empty */
		uint64_t began;
	} all[128];
};

/** struct keeper_looks - our time that goes into looking how much there is of what is rationed. */
struct keeper_looks {
	uint64_t second_ns; /* when the present second began; CLOCK_MONOTONIC */
	uint64_t spent_ns;  /* processor time since */
};

/** struct keeper_loan - memory that was lent for a capture which is over. All zero: there is none. */
struct keeper_loan {
	uint64_t due_ns;   /* when it is tried again to take it back; 0 = nothing is left of it */
	uint64_t pause_ns; /* between the last two tries; 0 = there was none yet */
	bool told;         /* that programs have taken some of it */
};

/** struct keeper - everything. */
struct keeper {
	struct box_config config;
	struct box box;
	struct keeper_gateway gateway;
	struct keeper_told told;
	struct learned learned; /* filters of programs, where filter_learns() */
	struct keeper_asker askers[KEEPER_ASKERS];
	struct keeper_confined confined;
	struct ration rations[RATIONS];
	bool ration_told[RATIONS]; /* that there are no more */
	uint64_t
		faults; /* taken in memory of programs; UINT64_MAX: too many, and it has been told */
	struct answer_writer writer;
	struct keeper_apart apart;
	struct keeper_looks looks;
	bool restoring; /* processes are being made again: what they ask for they had before */
	char id[ID_LEN + 1];
	enum keeper_state state;
	bool want_spare; /* a waiter has been used: order the next one at the end of the round */
	unsigned int last_leaf; /* number in the name of the leaf that was made last */
	bool leaves_left;       /* some exec has @leaf_left */
	bool quiet;             /* keeper_is_quiet() may say so: once, for the first program */
	bool provisional; /* it is in no catalogue yet: it ends with the connection of who started it */
	const char *lost;      /* why everything was killed, NULL = it was not */
	char lost_memory[160]; /* that, where it is not one of our own words */
	enum err_code lost_code;
	struct list conns, execs, waiters;
	struct list held; /* attachments without connection */
	int listen_fd, signal_fd;
	struct death early[KEEPER_EARLY_MAX]; /* children whose pid we did not know yet */
	size_t n_early;
	json_t *events;      /* array of unacknowledged events, oldest first */
	uint64_t event_next; /* number of the next event, from 1 */
	uint64_t events_lost;
	size_t events_sent;     /* how many of @events the primary connection has got */
	struct capture capture; /* under way while its pid is set: every process is stopped */
	int capture_numbers;    /* of open files, until they are saved; -1 = none */
	bool capture_numbered;  /* there were some */
	json_t *claim; /* keeper_verb_claim(), until it is dealt with, and what came with it */
	int claim_fds[HELD_MAX];
	size_t n_claim_fds;
	bool capture_readable; /* filters of programs, where there are some, can be read */
	struct capture
		ahead; /* prepared for template @ahead_of: its dumper waits, and nothing is stopped */
	char ahead_of[ID_LEN + 1];
	struct conn *ahead_conn; /* who asked for it */
	struct dump_report captured;
	struct dump_order capture_order; /* everybody who was stopped */
	struct conn *capture_conn;       /* who asked for it */
	bool loading;         /* some of the memory is still to come: nothing can be captured */
	struct first first;   /* what is to be there first when it comes from disk again */
	struct first touched; /* the same of the present loading */
	struct conn *waiting_conn; /* who asked for a capture meanwhile; NULL = nobody */
	json_int_t waiting_id;
	json_t *waiting;
	json_int_t
		release_id; /* its request to let go, answered when the memory is in the template; 0 = none */
	int instant; /* to the job that captures the files while all are stopped; -1 = it has, or there is none */
	uint64_t capture_begun_ns, capture_frozen_ns, capture_stopped_ns, capture_files_ns,
		capture_paused_ns, capture_deadline_ns;
	int32_t *twins; /* n_twins pids: what is copied after the release */
	size_t n_twins, twins_seen;
	struct keeper_loan loan;
	bool capture_disturbed; /* what is stopped was sent a signal, or input or a size of its terminal that nobody sends again: a suspension would lose it */
	bool suspended;         /* what ends now goes on elsewhere: nobody is told of ends */
	struct buf
		expected; /* what `restore` takes over: state of the programs; empty = nothing is to come */
	int fork_parent; /* pidfd of it while its processes are complete and wait for `go`, else -1 */
	int32_t fork_pid; /* of the parent of processes that came from a template; 0 = there are none */
	int fork_sock; /* to the parent of processes that came from a template; -1 = there are none */
	uint64_t output_forgotten; /* bytes of output of execs that are no longer kept */
	struct meter memory;       /* from `start` on */
	uint64_t forks_refused;    /* in groups that are gone: cgroup_leaf_refused() */
};

/** struct keeper_settings - texts of the environment (docs/design/0001), NULL where unset; borrowed for ever. */
struct keeper_settings {
	const char *state, *run, *tag, *mode, *accept_no_limits;
	const char *programs; /* directory of our programs; NULL = that of the running one */
};

/** keeper_main() - run a keeper for sandbox @id on socket @fd. Return: exit status. */
int keeper_main(const char *id, int fd, const struct keeper_settings *settings);

/** keeper_listen() - start listening on RUN/keepers/ID.sock. 0 or an error. */
int keeper_listen(struct keeper *k, struct err *err) attr_must_use;

/** keeper_handle() - act on one frame. Implemented in keeper_verbs.c. */
void keeper_handle(struct keeper *k, struct conn *c, const struct frame *f);

/** keeper_takes_programs() - can one be started just now, as far as the sandbox itself goes? */
bool keeper_takes_programs(const struct keeper *k);

/** keeper_start_exec() - start the program of the `exec` request @request (kept); @by gets the answer. */
void keeper_start_exec(struct keeper *k, const struct start_request *by, const json_t *request);

/** keeper_kill_all() - kill every process of the sandbox and reap ours, blocking. Return: 0 or -ETIMEDOUT. */
int keeper_kill_all(struct keeper *k) attr_must_use;

/** keeper_reply() - answer request @request with @ok (reference taken; NULL = {}). */
void keeper_reply(struct conn *c, json_int_t request, json_t *ok);

/** keeper_reply_error() - answer request @request with @err. */
void keeper_reply_error(struct conn *c, json_int_t request, const struct err *err);

/** keeper_exec_failed() - the program of the exec with id @exec, which @by asked for, could not be started: that is the answer, or an event where whoever asked has gone. */
void keeper_exec_failed(
	struct keeper *k, const struct start_request *by, const char *exec, const struct err *err);

/** keeper_event() - queue an event, or count it as lost where %KEEPER_EVENTS_MAX wait; @data is taken, NULL = none; @exec may be NULL. */
void keeper_event(struct keeper *k, const char *type, const char *exec, json_t *data);

/** keeper_event_always() - the same of one that is never lost, however many wait: for what the peer asks for, so that there are few. What was lost is told before it. */
void keeper_event_always(struct keeper *k, const char *type, const char *exec, json_t *data);

/** keeper_hello() - the hello object, which every connection begins with: small, whatever the sandbox has done; new reference. */
json_t *keeper_hello(const struct keeper *k) attr_must_use;

/** keeper_status() - the same and all execs that the keeper remembers, @brief: their ids alone; new reference. */
json_t *keeper_status(const struct keeper *k, bool brief) attr_must_use;

/**
 * keeper_status_piece() - the same in pieces that a frame has room for, in the order of the channels: what is above @above (0 at first). It says `above`, where the next one begins, unless it is the last.
 */
json_t *keeper_status_piece(const struct keeper *k, bool brief, uint16_t above) attr_must_use;

/** keeper_send_json() - queue @object (reference taken) as a frame. */
void keeper_send_json(struct conn *c, enum frame_type type, uint16_t channel, json_t *object);

/** keeper_find_exec() - by channel, or NULL. */
struct exec *keeper_find_exec(const struct keeper *k, uint16_t channel);

/** keeper_move() - change the state; asserts that the transition exists. */
void keeper_move(struct keeper *k, enum keeper_state to);

/** keeper_stop() - move to KEEPER_STOPPING, unless it has been moved already: SIGTERM may come while it stops. */
void keeper_stop(struct keeper *k);

/** keeper_state_name() - "new", "ready", "running", "paused", "stopping". */
const char *keeper_state_name(enum keeper_state state);

/* --- keeper_ration.c --- */

/**
 * keeper_ration() - is the call of @notice one by which somebody wants what is rationed? Then it is answered.
 * @listener: where it was told of; borrowed. Return: false: it is another one, and not answered.
 */
bool keeper_ration(struct keeper *k, int listener, const struct seccomp_notif *notice);

/* --- keeper_sysinfo.c --- */

/**
 * keeper_sysinfo() - is the call of @notice sysinfo(2)? Then it is answered, or, where we may not write to its caller, or have made too many pages there, left to the kernel.
 * @listener: where it was told of; borrowed. Return: false: it is another one, and not answered.
 */
bool keeper_sysinfo(struct keeper *k, int listener, const struct seccomp_notif *notice);

/* --- keeper_execs.c --- */

/** keeper_needed_from() - offset of the oldest byte that an attached client of @e still needs; the end when there is none. */
uint64_t keeper_needed_from(const struct keeper *k, const struct exec *e);

/** keeper_read_output() - read what is there of @stream, keeping all from offset @keep on; says so when its way to disk ends. true when something changed. */
bool keeper_read_output(struct keeper *k, struct exec *e, enum ring_stream stream, uint64_t keep);

/** keeper_save_output() - the output of all programs goes to disk, because this process ends. Failures are events. */
void keeper_save_output(struct keeper *k);

/**
 * keeper_lose() - it cannot go on, be it that one of our own processes died in a way that leaves the sandbox in no known state: kill all of it. Its execs end as `lost`.
 * @code: of the sandbox's error. @reason: for ever.
 */
void keeper_lose(struct keeper *k, enum err_code code, const char *reason);

/** keeper_remove_leaves() - remove the groups of programs that have ended; nobody waits for that, so it comes after what was said of their ends. */
void keeper_remove_leaves(struct keeper *k);

/** keeper_read_signals() - act on what the signal descriptor reports: reap children, or end when told to. */
void keeper_read_signals(struct keeper *k);

/** keeper_take_early() - has @pid been reaped before anybody knew whose it is? Then its death is taken out. */
bool keeper_take_early(struct keeper *k, pid_t pid, struct death *ret);

/** keeper_exec_began() - the program of @e runs; it may have ended already. */
void keeper_exec_began(struct keeper *k, struct exec *e);

/** keeper_deadline_counts() - has @e a deadline that passes just now? Not while it is being suspended. */
bool keeper_deadline_counts(const struct keeper *k, const struct exec *e);

/** keeper_check_deadlines() - kill the execs whose deadline has passed. */
void keeper_check_deadlines(struct keeper *k);

/* --- keeper_waiters.c --- */

/**
 * keeper_launch() - let a waiter become the program of @e; its answer comes to keeper_read_waiter().
 * @stdio: closed. Return: the waiter, for the caller to note who asked; NULL with @err.
 */
struct waiter *keeper_launch(struct keeper *k, struct exec *e, const json_t *request, int stdio[3],
	struct err *err) attr_must_use;

/** keeper_execute() - the program on @channel was held and may begin: whoever becomes it is told. Nothing when none is about to. */
void keeper_execute(struct keeper *k, uint16_t channel);

/**
 * keeper_is_quiet() - does what there is to say to @c wait for the answer to the program that is being started? It is for the same one, who waits for that: to be woken before would only take the
 * processor from the process that becomes the program.
 */
bool keeper_is_quiet(struct keeper *k, const struct conn *c);

/** keeper_launching() - has a program been asked for that does not run yet? */
bool keeper_launching(const struct keeper *k);

/** keeper_kill_waiter() - who is about to become @e, which is in EXEC_STARTING, is killed; nobody when it has not been made yet. */
void keeper_kill_waiter(const struct keeper *k, const struct exec *e);

/** keeper_want_spare() - order a waiter unless there is one that nobody has asked for. */
void keeper_want_spare(struct keeper *k);

/** keeper_is_spare() - is leaf @name that of a waiter which nobody has asked for yet? */
bool keeper_is_spare(const struct keeper *k, const char *name);

/** keeper_drop_spare() - end it, blocking for as long as a process takes to die: its starter ends, or everything in the sandbox is about to be stopped. */
void keeper_drop_spare(struct keeper *k);

/** keeper_read_starter() - the starter has answered the oldest order, or ended. */
void keeper_read_starter(struct keeper *k);

/** keeper_read_waiter() - @w has become its program, or says why not, or has ended. Frees it, perhaps. */
void keeper_read_waiter(struct keeper *k, struct waiter *w);

/** keeper_try_again() - let others become what those should have become who were killed before they executed anything. */
void keeper_try_again(struct keeper *k);

/** keeper_waiter_ended() - @pid was reaped. Was it a waiter without exec? */
bool keeper_waiter_ended(struct keeper *k, pid_t pid);

/* --- keeper_gateway.c --- */

/** keeper_gateway_running() - is there one that can be spoken to? */
bool keeper_gateway_running(const struct keeper *k);

/** keeper_gateway_wanted() - start one unless it runs or has just died. */
void keeper_gateway_wanted(struct keeper *k);

/** keeper_gateway_read() - answer one message of the gateway. */
void keeper_gateway_read(struct keeper *k);

/** keeper_gateway_hand_over() - give it @fd (borrowed), a connection of cayd. Return: 0 or -errno. */
int keeper_gateway_hand_over(struct keeper *k, int fd) attr_must_use;

/** keeper_gateway_ended() - it was reaped. */
void keeper_gateway_ended(struct keeper *k, int wait_status);

/** keeper_gateway_next_ns() - when the keeper has to look again whether one is wanted; UINT64_MAX = it need not. */
uint64_t keeper_gateway_next_ns(const struct keeper *k);

/* --- keeper_told.c --- */

/** keeper_read_told() - a system call that is told waits for its answer at @listener, of @k->told or about to be; closed when nobody is left who could make one. */
void keeper_read_told(struct keeper *k, int *listener);

/** keeper_told_close() - tell what was counted of @exec (NULL: of all) whose second has ended by @now_ns (UINT64_MAX: whatever the time). */
void keeper_told_close(struct keeper *k, const char *exec, uint64_t now_ns);

/* --- keeper_confined.c --- */

/** keeper_note_confined() - whoever waits with @notice, at @listener, is about to enter a Landlock domain of its own. */
void keeper_note_confined(struct keeper *k, int listener, const struct seccomp_notif *notice);

/** keeper_confined() - may somebody in the control group @leaf be in a Landlock domain of its own? Only who has given up privileges (no_new_privs) can. */
bool keeper_confined(const struct keeper *k, const char *leaf);

/** keeper_unconfined() - group @leaf has gone, and with it all who were in it. */
void keeper_unconfined(struct keeper *k, const char *leaf);

/* --- keeper_learn.c --- */

/** keeper_learn() - if @notice, of @listener, is of a call that is to go on (a filter or a Landlock domain of a program's own): take note of it and let it. Return: whether it was. */
bool keeper_learn(struct keeper *k, int listener, const struct seccomp_notif *notice);

/** keeper_learn_unasked() - who waits at @listener with @notice installs a filter, and nobody has asked it: take note, and let it go on. */
void keeper_learn_unasked(struct keeper *k, int listener, const struct seccomp_notif *notice);

/** keeper_learned() - what is known of the filters of the processes of @order. Return: a memory file in the format of checkpoint/seizer.h, or -errno. */
int keeper_learned(const struct keeper *k, const struct dump_order *order) attr_must_use;

/* --- keeper_ask.c --- */

/**
 * keeper_ask() - have @install->who asked, who is the caller of @notice and has the @n filters @chain[], of what its filter refuses it to be asked (the last of @chain, behind those).
 * Return: true: it will be, and comes again with its call, or to keeper_learn_unasked(). false: it need not be, or cannot.
 */
bool keeper_ask(struct keeper *k, int listener, const struct seccomp_notif *notice,
	const struct learned_install *install, const struct filter_program *chain, uint32_t n);

/** keeper_asked() - has the caller of @notice been asked, and comes again? @ret: what is known of it, bits of checkpoint/asker.h. */
bool keeper_asked(struct keeper *k, const struct seccomp_notif *notice, uint32_t *ret);

/** keeper_read_asker() - @a has answered, or ended. */
void keeper_read_asker(struct keeper *k, struct keeper_asker *a);

/** keeper_await_askers() - wait, for a moment, until nobody is being asked: whoever is, is being traced. Return: 0 or -ETIMEDOUT. */
int keeper_await_askers(struct keeper *k) attr_must_use;

/** keeper_told_next_ns() - when the keeper has to look again at any of this; UINT64_MAX = it need not. */
uint64_t keeper_told_next_ns(const struct keeper *k);

/** keeper_suspending() - do the programs stand still, not to run here again? */
bool keeper_suspending(const struct keeper *k);
/** keeper_disturbed() - a signal is sent, or was, to a program, or input that nobody sends again: where it stands still to be suspended, it is not. */
void keeper_disturbed(struct keeper *k);
/** keeper_reap_children() - take note of the ends that have been. Not while the dumper of a capture may have ended: see capture_died(). */
void keeper_reap_children(struct keeper *k);

/** keeper_child_ended() - a process whose parent is the keeper, or who was reported to it, has ended. */
void keeper_child_ended(struct keeper *k, const struct death *d);

/* --- keeper_live.c --- */

/**
 * keeper_freeze() - have all processes stand still, so that none of them is told of it when it goes on: as capture_settle(). Blocks some ms, seconds at most. Return: 0 or -errno: some may be frozen.
 */
int keeper_freeze(struct keeper *k) attr_must_use;

/** keeper_cannot_freeze() - say why the processes could not be frozen. @rc: of keeper_freeze() or cgroup_freeze(); -ETIMEDOUT passes, and is %ERR_BUSY. Return: negative. */
int keeper_cannot_freeze(int rc, struct err *err);

/** keeper_verb_examine() - what would a capture refuse just now? */
void keeper_verb_examine(struct keeper *k, struct conn *c, json_int_t id, const json_t *request);
/** keeper_verb_ready() - do what a capture into the template that @request names can do while the processes run; without one: forget what was done. */
void keeper_verb_ready(struct keeper *k, struct conn *c, json_int_t id, const json_t *request);
/** keeper_ahead_end() - forget what keeper_verb_ready() has done; nothing when it has done nothing. */
void keeper_ahead_end(struct keeper *k);
/** keeper_no_group() - there is nothing by which the sandbox could be frozen. Return: a negative errno, with @err set. */
int keeper_no_group(struct err *err);
/** keeper_verb_capture() - stop everything and copy it into the template that @request names. */
void keeper_verb_capture(struct keeper *k, struct conn *c, json_int_t id, const json_t *request);
/** keeper_read_instant() - the files are captured, or their job has given up. */
void keeper_read_instant(struct keeper *k);
/** keeper_read_capture() - the dumper has something to say: the memory is in the template, or why not. */
void keeper_read_capture(struct keeper *k);
/** keeper_verb_release() - let go what keeper_verb_capture() has stopped; answered when its memory is in the template. */
void keeper_verb_release(struct keeper *k, struct conn *c, json_int_t id, const json_t *request);
/** keeper_verb_suspend() - end the processes that keeper_verb_capture() has stopped, just as they are in the memory object that @request names; this keeper ends with them. */
void keeper_verb_suspend(struct keeper *k, struct conn *c, json_int_t id, const json_t *request);

/** keeper_capture_end() - let a sandbox go that was stopped for a capture; nothing when it was not. */
void keeper_capture_end(struct keeper *k);

/** keeper_take_back() - of memory that was lent to programs for a capture, all that they have not taken; when some is left, again later, and an event says so. Context: once when a capture has ended, and whenever the loan is due. */
void keeper_take_back(struct keeper *k);

/** keeper_template_of() - id of the template that @request names, borrowed from it; NULL with @err set. */
const char *keeper_template_of(const json_t *request, struct err *err);

/** keeper_read_state() - read what keeper_state_path() has of @template. @state: buf_free() in any case. Return: 0 or an error. */
int keeper_read_state(const struct keeper *k, const char *template, struct buf *state,
	struct err *err) attr_must_use;

/** keeper_state_path() - where the state of the programs of @template lies: written by the keeper that captures, read by those that restore. */
void keeper_state_path(const struct keeper *k, const char *template, char path[PATH_MAX]);

/* --- keeper_restore.c --- */

/**
 * keeper_expect() - before the sandbox is started: get ready for the processes of the template that the @request to start it names, if it does.
 * @ret_back_ns: by how much their clocks step back; 0 unless the machine was started anew and has no time namespaces. Return: 0 or an error.
 */
int keeper_expect(struct keeper *k, const json_t *request, uint64_t *ret_back_ns,
	struct err *err) attr_must_use;
/** keeper_restore() - when the sandbox is started: make the processes of the template that @request names, and let them run. @ret: their execs. Return: 0 or an error. */
int keeper_restore(struct keeper *k, const json_t *request, json_t **ret, struct err *err);

/** keeper_has_sockets() - is there any in the sandbox's network but ours? Also where it cannot be told. */
bool keeper_has_sockets(const struct keeper *k);

/** keeper_unlisted_sockets() - how many sockets of the sandbox are in no table of their protocol's: new ones, and such as have no port any more. 0 when it cannot be told. */
uint64_t keeper_unlisted_sockets(const struct keeper *k);

/* --- keeper_uncounted.c --- */

/** keeper_verb_uncounted() - look what sockets, open directories and record locks hold that no control group counts, and end who holds too much. Answered by `settled`: all is in order, and was looked at; `spent_ns`: of a processor. */
void keeper_verb_uncounted(struct keeper *k, struct conn *c, json_int_t id, const json_t *request);

/* --- keeper_devices.c --- */

/** keeper_verb_hold() - give the mounts of the sandbox's overlays to cayd (%HELD_SOCKET). None of who is captured and has nothing to remember. */
void keeper_verb_hold(struct keeper *k, struct conn *c, json_int_t id, const json_t *request);

/**
 * keeper_verb_claim() - before `start`, on a connection of its own, with the descriptors that keeper_verb_hold() has given, of `places`: have the device numbers for the overlays of the processes of the
 * template that @request names (sandbox/devices.h). Not answered: what cannot be had is said by `start`.
 */
void keeper_verb_claim(struct keeper *k, struct conn *c, json_int_t id, const json_t *request);

/** keeper_take_claim() - before a start: a claim that has been sent is dealt with. @c: who asks for the start. */
void keeper_take_claim(struct keeper *k, const struct conn *c);

/** keeper_verb_restore() - make the processes of the template that @request names, and hold them. */
void keeper_verb_restore(struct keeper *k, struct conn *c, json_int_t id, const json_t *request);

/** keeper_verb_go() - let the processes run that keeper_verb_restore() has made and held. */
void keeper_verb_go(struct keeper *k, struct conn *c, json_int_t id, const json_t *request);

/** keeper_capture_waiting() - all memory is there, or nothing is any more: the capture that was asked for meanwhile is made now. */
void keeper_capture_waiting(struct keeper *k);

/** keeper_read_fork() - a process that came from a template has ended, or their parent has. */
void keeper_read_fork(struct keeper *k);

/* --- keeper_conns.c --- */

/** keeper_conn_new() - take over connected socket @fd and greet the peer. @primary: it gets the events. Return: owned by @k. */
struct conn *keeper_conn_new(struct keeper *k, int fd, bool primary);

/** keeper_conns_read() - read and handle what the other connections than @c hold. */
void keeper_conns_read(struct keeper *k, const struct conn *c);

/** keeper_conns_drain() - read what the other connections than @c still hold, and end them: who was there before has gone. */
void keeper_conns_drain(struct keeper *k, const struct conn *c);

/** attachment_needs() - offset of the oldest byte that the client of @a may still want; UINT64_MAX: it wants none. */
uint64_t attachment_needs(const struct attachment *a, const struct exec *e);

/** keeper_hold() - the output on @channel is kept from offset @from on for who attaches within %KEEPER_HOLD_NS. */
void keeper_hold(struct keeper *k, uint16_t channel, uint64_t from);

/** keeper_hold_attended() - so is what the restored execs on the channels @attended (JSON) still have. */
void keeper_hold_attended(struct keeper *k, const json_t *attended);

/** keeper_release() - nobody comes back for the output of @channel any more, or somebody has. */
void keeper_release(struct keeper *k, uint16_t channel);

/** keeper_accept() - accept a connection on RUN/keepers/ID.sock, if the peer is root or cayd. */
void keeper_accept(struct keeper *k);

/** keeper_conn_read() - read and handle some of what @c has sent; marks it broken at its end. Return: was there anything? */
bool keeper_conn_read(struct keeper *k, struct conn *c);

/** keeper_conn_write() - send as much of what waits for @c as its socket takes now; keeper_pump() sends the rest. */
void keeper_conn_write(struct conn *c);

/** keeper_pump() - send output, windows and final statuses to attached clients as far as their sockets take them. */
void keeper_pump(struct keeper *k);

/** keeper_close_broken() - release the connections that ended in this round. */
void keeper_close_broken(struct keeper *k);

#endif
