/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/server.h - cayd's objects: the server, sandboxes, execs, snapshots, images, keepers.
 *
 * All of it lives on the loop's thread. Documents (`doc`) are the API objects themselves, kept in the catalogue as they are. Sandboxes and execs are counted
 * references, because a request may hold one while another removes it; `gone` tells.
 */
#ifndef CAY_API_SERVER_H
#define CAY_API_SERVER_H

#include "api/gateways.h"
#include "api/hold.h"
#include "api/index.h"
#include "api/jobs.h"
#include "api/keeper_pool.h"
#include "api/mishaps.h"
#include "api/mounted.h"
#include "api/route.h"
#include "api/spare.h"
#include "api/uncounted.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/map.h"
#include "events/journal.h"
#include "events/log_budget.h"
#include "events/process_source.h"
#include "io/framelink.h"
#include "store/catalogue.h"
#include "sys/spawn_request.h"

#define SLOT_COUNT    16384U
#define SLOT_UID_BASE 0x40000000U
#define POOL_DEFAULT  4U
#define STARTING_MAX  8 /* keepers that are prepared at a time: more only get in each other's way */
#define CALL_NS       (30 * NS_PER_S)
#define JOB_NS        (3600ULL * NS_PER_S)

enum sandbox_state {
	SANDBOX_CREATING,
	SANDBOX_RUNNING,
	SANDBOX_PAUSED,
	SANDBOX_SUSPENDED,
	SANDBOX_STOPPED,
	SANDBOX_FAILED,
	SANDBOX_REMOVING,
	SANDBOX_STATE_COUNT
};

/** enum run_state - does a sandbox belong to a run, and who follows it? See runs.c. */
enum run_state { RUN_NONE, RUN_FOLLOWED, RUN_ORPHAN };

struct sandbox;
struct exec;
struct telling;

/** struct event_ack - events that came over a connection and are acknowledged when they are in the journal: server_acknowledge(). */
struct event_ack {
	struct list node; /* while something is to be acknowledged */
	struct framelink *link;
	uint64_t n; /* the highest number of them */
};

/** struct keeper - a keeper process and the connection to it. */
struct keeper {
	struct framelink link;
	struct list node;
	struct map_node by_id;
	struct list pool_node; /* in the pool, until keeper_claim() */
	struct server *srv;
	char id[ID_LEN + 1];
	uint32_t slot;
	pid_t pid; /* 0 when unknown (adopted ones say it) */
	bool hello, prepared, failed;
	bool adopted;            /* no child of our cay-spawn: it does not report its end */
	bool reaped;             /* cay-spawn has cleaned up behind it */
	struct err error;        /* why it failed */
	char lost[160];          /* why its sandbox was killed unasked; "" = it was not */
	enum err_code lost_code; /* of that; ERR_NONE = of no kind */
	json_t *hello_doc;
	json_t *foreseen; /* the beginning that it was prepared for, or NULL: api/keeper_pool.h */
	struct sandbox *sandbox;
	struct event_ack ack;
	struct waiters changed;
	unsigned int refs;
	bool closed;
};

/** struct idle_reading - what tells that a sandbox works: counters. */
struct idle_reading {
	uint64_t cpu_us, traffic;
};

/** struct idleness - since when a sandbox has not been used: api/idle.h. Times of CLOCK_MONOTONIC. */
struct idleness {
	unsigned int users; /* requests and streams that need it awake */
	uint64_t active_ns; /* its last use */
	uint64_t window_ns; /* since when it is watched; 0: not yet */
	struct idle_reading begun;
	uint64_t retry_ns, backoff_ns; /* it could not be suspended: when it is tried again */
	bool told;                     /* … and an event has said so */
	bool looking, suspending;
};

/** struct trouble - why the gateway of a sandbox could not be given its configuration, the last times. */
struct trouble {
	unsigned int tries;  /* that failed, one after the other */
	char *logged, *told; /* the reasons; NULL = none */
};

/** struct sandbox - one row of the catalogue and what runs of it. */
struct sandbox {
	struct list node;
	struct map_node by_id, by_name, by_run, by_key;
	struct indexed indexed;
	struct server *srv;
	char id[ID_LEN + 1];
	char name[NAME_MAX_LEN + 1];
	enum sandbox_state state;
	json_t *doc;
	struct keeper *keeper;        /* NULL unless creating, running or paused */
	struct gateway_link *gateway; /* NULL unless one runs and we have reached it */
	bool gateway_wanted;          /* the keeper has one */
	bool gateway_held;            /* nothing goes out: gateway_hold() */
	unsigned int gateway_version; /* of what its configuration is made of */
	struct trouble gateway_trouble;
	struct mishaps mishaps; /* since then */
	struct log_budget
		told_refused; /* what it may have of the log for what its gateway refused */
	struct list execs;    /* but for past ones: api/exec_past.h */
	uint16_t next_channel;
	bool has_past, tidying;
	unsigned int ended_since; /* execs, since execs_tidy() */
	struct idleness idle;
	json_t *steps_due; /* numbers of ended steps whose snapshot is not there yet: api/steps.h */
	bool checkpointing; /* a fiber sees to them */
	struct hold held;   /* while its processes are elsewhere: api/hold.h */
	bool hold_wanted;   /* hold_take() waits for it */
	bool lazy_failed;   /* the last resume, which might have been a lazy one */
	bool another;       /* than what its processes were captured in: identity_choose() */
	bool awaited; /* the start of the server went on without it: sandbox_await(); locked meanwhile */
	bool estranged; /* awaited for good: its keeper is there, and speaks another protocol */
	bool locked;    /* an operation that may not meet another is under way */
	bool lent;      /* it only listens to a command: sandbox_lock_beside() may have its lock */
	bool borrowed;  /* and has it */
	struct stream *
		reader; /* of a run: its client, who may still be taking the output when the command has ended */
	uint64_t
		hurry_ns; /* of a run that somebody ends: how long its client has for the output; 0: nobody does */
	struct list readings;    /* jobs that read its files: api/readings.h */
	unsigned int opening;    /* those of them that have not opened all yet */
	bool sealing;            /* its files are on their way into a layer */
	struct list writings;    /* jobs that put files into it: api/writings.h */
	unsigned int unwritable; /* no further one begins */
	bool gone;
	const struct telling
		*birth; /* announced in the commit that says that it is there; NULL: nothing is */
	char stranded[ID_LEN +
		      1]; /* layer of a seal that has its files though nothing came of the snapshot: sandbox_settle_files() */
	enum run_state run;
	struct waiters changed;
	unsigned int refs;
};

/** exec_sink - receives the frames of an exec that arrive on the keeper's main connection. */
struct exec_sink {
	void (*frame)(struct exec_sink *sink, const struct frame *f);
	void (*lost)(struct exec_sink *sink); /* the keeper is gone */
};

struct exec {
	struct list node;
	char id[ID_LEN + 1];
	struct sandbox *sandbox; /* not counted: lives as long as the exec is listed */
	uint16_t channel;
	json_t *doc;
	bool ended;
	bool archived; /* its keeper is gone, or has forgotten it: output is in STATE/exec, if anywhere */
	bool asked;   /* had ended when its keeper was asked which it still holds */
	bool unheard; /* of an earlier server, whose keeper has not said what became of it */
	bool started;
	bool reaped; /* before this server began: its number may be another's, of the host */
	json_t *env; /* the whole environment, until it is sent */
	struct err *refused; /* why it never began, or NULL: for who waits for it */
	bool fleeting; /* of a run that is forgotten unless it changed something: its end is not written then */
	bool unchanged; /* its keeper says that no cow mount changed, or nobody wants to know */
	struct list unsaved;  /* in srv->unsaved while its row does not say that it has ended */
	uint64_t created_n;   /* number of its exec.created, cause of what follows */
	uint64_t created_seq; /* the same in its chain; 0 = of an earlier server */
	struct exec_sink *sink;
	struct waiters changed;
	struct list turns; /* requests that write to its standard input: exec_stdin.c */
	bool comes_back; /* its sandbox is being rewound to a state that it is in: it does not end */
	unsigned int rewinds; /* how often it came back so, */
	uint64_t rewound_to;  /* the last time with so many bytes of output */
	unsigned int clients; /* attached to it, also while it is suspended or being rewound */
	bool expected; /* one of them was sent away when it was suspended, or resumed, and comes back */
	unsigned int refs;
};

struct snapshot {
	struct list node;
	struct map_node by_id, by_name;
	struct indexed indexed;
	char id[ID_LEN + 1];
	json_t *doc;
	unsigned int users; /* operations that need it just now: snapshot_hold() */
	bool unwanted;      /* its processes go with the last of them */
	bool settling;
	struct live *live;          /* its processes, or NULL: api/lives.h */
	uint64_t used_ns;           /* CLOCK_MONOTONIC: its processes, last */
	uint64_t settle_due_ns;     /* CLOCK_MONOTONIC: not before; 0 = at once */
	uint64_t settle_put_off_ns; /* by the last failure; 0 = there was none */
};

struct image {
	struct list node;
	char id[ID_LEN + 1];
	json_t *doc;
};

struct server {
	uv_loop_t *loop;
	char state[4096], run[4096], socket[4096], tag[9];
	char own_state[32],
		own_run[32]; /* the same through descriptors: their parents may be closed to us */
	int state_fd;
	bool rootless;
	uint64_t templates_most; /* bytes of memory that templates of snapshots may have together */
	uint64_t lazy_least;     /* bytes of memory from which on a resume is a lazy one */
	const char *trust, *through; /* see struct server_setup */
	const char *build;           /* the same */
	const char *uid_map;         /* "range" or "single" */
	char cgroup[16];             /* "v2" or "none" */
	bool limits_held; /* those of memory, processes and processors, by a control group */
	uid_t uid;        /* ours */
	gid_t group;      /* group whose members may connect; (gid_t)-1 = none */
	struct http_server http;
	struct catalogue *catalogue;
	struct journal *journal;
	int flushed; /* how it went the last time: server_flush() */
	struct process_source *processes;
	int hold_listener;       /* of api/hold.h; -1 before anything was */
	char process_error[200]; /* why there are no process events; "" = there are */
	uv_poll_t spawn_poll, process_poll;
	uv_prepare_t prepare;
	uv_timer_t housekeeping;
	int spawn_fd;
	int lock_fd; /* see struct server_setup */
	struct list keepers, jobs, lives;
	struct map keepers_by_id;
	struct keeper_pool pool;
	struct mounted mounted;
	struct spare spare;
	struct list acks; /* connections whose events are to be acknowledged */
	struct list sandboxes, snapshots, images;
	struct list
		unsaved; /* execs whose end was told, and is not in their rows: execs_save_again() */
	struct map sandboxes_by_id, sandboxes_by_name, snapshots_by_id, snapshots_by_name;
	struct index index;
	struct list pumps; /* streams that carry frames just now */
	struct list
		leaving; /* runs whose clients have their answers, and whose rows are there: runs_settle() */
	unsigned int busy; /* requests that are being answered */
	struct waiters idle;
	unsigned char slots[SLOT_COUNT / 8];
	json_t *keys_busy;
	struct waiters keys_changed;
	uint64_t keys_stored;
	struct waiters events_changed;
	char *nameservers;           /* of this machine, or NULL: api/nameservers.h */
	uint64_t nameservers_due_ns; /* when they are read again */
	struct uncounted uncounted;  /* memory that nobody is charged for */
	uint64_t retire_due_ns;      /* when old events are looked for next */
	uint64_t events_seen;        /* last n that followers were told of */
	char *mask;                  /* layer that hides parts of the host image, or NULL */
	json_t *mask_for;            /* mounted_in_host() when it was made; rootless only */
	bool masking;                /* a job makes it */
	struct waiters mask_tried;   /* that job is over */
	json_t *storage;             /* what the storage job said, or NULL */
	struct err storage_error;
	bool reserve_missing; /* see reserve.c */
	json_t *trash;        /* ids of removed sandboxes whose files are still there */
	json_t *past_gone;    /* ids of removed sandboxes whose past execs are still there */
	bool past_clearing;
	json_t *buried;  /* rows of removed things: api/telling.h */
	bool trash_left; /* in the pool's trash/ is what nobody deletes */
	bool trash_busy, settling;
	struct waiters trash_changed;    /* the server stops, or they are gone */
	bool flattening, flatten_failed; /* see chains.c */
	json_t *damaged_runs;            /* the same */
	bool ending;                     /* asked to end */
	bool failed; /* it ends though nobody asked for that: who watches over it starts another */
	bool stopping; /* nothing new is begun */
	bool recovered; /* what an earlier server left untold has been read: heads may lead past it */
	bool ready;     /* recovery is over */
	struct waiters became_ready;
	struct waiters settled; /* a snapshot got further in the background, or did not */
};

/* --- server.c --- */

/** struct server_setup - what main() has prepared while it still had its privileges; descriptors are taken over. */
struct server_setup {
	const char *build; /* of which sources: tools/build_id.py; static */
	const char *state, *run, *tag;
	const char *socket; /* path of @listen_fd */
	bool rootless;
	const char *uid_map;
	int listen_fd, spawn_fd;
	int state_fd, run_fd; /* the directories, opened while that was allowed */
	int ready_fd;         /* gets a byte when requests are taken; -1 = nobody waits */
	int lock_fd; /* file that promises another server behind this one; emptied when this one is asked to end for good. Stays main()'s */

	struct proc_connector *connector; /* fd -1 when there is none */
	const char *process_error;
	gid_t group;
	const char *
		trust; /* PEM text of roots that gateways accept beside this machine's; NULL: none */
	const char *
		through; /* "host:port" of an HTTP proxy that all HTTP of gateways goes through; NULL: none */
};

/** server_run() - open everything, serve until asked to end by SIGTERM, SIGINT or its API; the two signals are unblocked. Return: exit status. */
int server_run(const struct server_setup *setup);

/** server_acknowledge() - say so to the other end when events up to number @n are in the journal. */
void server_acknowledge(struct server *srv, struct event_ack *ack, uint64_t n);

/** server_flush() - write the journal and acknowledge what it has now. */
void server_flush(struct server *srv);

/** server_event() - add an event. @sb: may be NULL. @data is stolen. Return: its n. */
uint64_t server_event(struct server *srv, struct sandbox *sb, enum event_type type,
	const char *exec, json_t *data);

/** server_busy() - something that the server may not leave undone when it ends has begun; server_idle() when it is over. */
void server_busy(struct server *srv);
/** server_idle() - see server_busy(). */
void server_idle(struct server *srv);

/** server_chain_head() - the catalogue's head of the chain @id ("" = the instance's). Return: 1; 0 when there is none, or an error: then its seq is 0. */
int server_chain_head(struct server *srv, const char *id, struct journal_head *head,
	struct err *err) attr_must_use;

/** server_retire_events() - let the oldest events go, as far as the rules say. */
void server_retire_events(struct server *srv);

/** server_watch_processes() - be woken by process events only while a sandbox runs; they are read now and then in any case. */
void server_watch_processes(struct server *srv);

/** server_stop() - end the loop after what is under way has been answered. */
void server_stop(struct server *srv);

/** server_make_mask() - have the layer made that hides the host image's private parts, if it is not there, or, rootless, is not for what is mounted now. By one job at a time. 0 or an error. Context: waits. */
int server_make_mask(struct server *srv, struct err *err);

/** server_storage_init() - have the pool made and mounted as @request (taken) says; the first time, what an earlier server left in it is recovered. Context: waits. */
int server_storage_init(struct server *srv, json_t *request, struct err *err);

/** server_storage_check() - 0 when there is a pool, else the error that kept it from being prepared, or ERR_BUSY while what the last server left in it is being seen to. */
int server_storage_check(const struct server *srv, struct err *err);

/** reserve_fill() - set room aside in the state directory if that was not done yet and there is plenty. Cheap when there is nothing to do. */
void reserve_fill(struct server *srv);

/** reserve_use() - before an operation that makes room: give up what was set aside if the disk is full. */
void reserve_use(struct server *srv);

/** reserve_check() - before an operation that takes room: %ERR_DISK_FULL when there is none but what is set aside (of a pool that is broken its jobs tell). */
int reserve_check(const struct server *srv, struct err *err) attr_must_use;

/** struct loading - what reads rows of the catalogue when the server starts. */
struct loading {
	struct server *srv;
	struct err *err;
};

/**
 * server_unread() - row @id of @table cannot be read. What it needs would be garbage, of which a start clears the pool: there is none. Return: -EBADMSG with @l->err set.
 */
int server_unread(const struct loading *l, const char *table, const char *id);

/** server_known_ids() - ids of all sandboxes and of all keepers of the pool. A new reference. */
json_t *server_known_ids(struct server *srv);

/** server_known_epochs() - {sandbox: its epoch now} of all sandboxes. A new reference. */
json_t *server_known_epochs(struct server *srv);

/** slot_take() - a range of host uids that nobody has; -1 when none is free. */
int slot_take(struct server *srv);
/** slot_free() - give a range back. */
void slot_free(struct server *srv, uint32_t slot);
/** slot_mark() - a range is in use: of a sandbox that was read from the catalogue. */
void slot_mark(struct server *srv, uint32_t slot);

/* --- spawner.c --- */

/**
 * spawner_start() - ask cay-spawn for a process; its end comes through spawner's own dispatch (keeper_ended(), job_ended()).
 * @what: kind, and what belongs to that kind; the rest is filled in here.
 * @ret_fd: our end of its socket, owned by the caller.
 */
int spawner_start(struct server *srv, struct spawn_request what, const char *id, int *ret_fd,
	struct err *err);

/** spawner_cleanup() - kill and clear up what is left of @id; the report arrives as an end. */
void spawner_cleanup(struct server *srv, const char *id);

/** spawner_init() - watch the socket of cay-spawn. Return: 0 or -errno. */
int spawner_init(struct server *srv);

/* --- keepers.c --- */

/** keeper_new() - start a keeper for @id (made up when NULL) and prepare it, for the caller alone; keeper_ready() waits for it. May wait while many others are started. */
struct keeper *keeper_new(struct server *srv, const char *id, int slot, struct err *err);

/** keeper_ready() - wait until it is prepared. Context: waits. */
int keeper_ready(struct keeper *k, struct err *err);

/** keeper_adopt() - connect to RUN/keepers/ID.sock and take the keeper over. NULL with @err set; ERR_UNSUPPORTED: it is there, and must be left alone. Context: waits. */
struct keeper *keeper_adopt(struct server *srv, const char *id, struct err *err);

/** keeper_died() - PID 1 of its sandbox has ended, and with it all others. @said: the keeper's `reason` and `code`, where it was that which killed it; or NULL. The sandbox is lost, as soon as its lock is free. */
void keeper_died(struct keeper *k, const json_t *said);

/** keeper_holds() - the execs that @k remembers. @deadline_ns: 0 = as long as it is there. @ret: an object with a member for the id of each, the caller's. Return: 0 or -errno. Context: waits. */
int keeper_holds(struct keeper *k, uint64_t deadline_ns, json_t **ret) attr_must_use;

/** keeper_connect() - a further connection to a keeper. Return: descriptor or -errno; -ETIMEDOUT: it takes in none. Context: waits. */
int keeper_connect(struct server *srv, const char *id) attr_must_use;

/** keeper_end() - stop it, wait until nothing of it is left, at most 20 s. @save: it keeps the output of its execs on disk. Context: waits. */
void keeper_end(struct keeper *k, bool save);

/** keeper_unref() - the memory goes when it is closed and nobody holds it. */
void keeper_unref(struct keeper *k);

/** keeper_on_spawn_event() - what cay-spawn reports about @id; false when it is no keeper's. */
bool keeper_on_spawn_event(struct server *srv, const struct spawn_event *e);

/** keepers_unreported() - cay-spawn has ended, and nobody reports the end of a keeper any more: who waits for one looks for himself. */
void keepers_unreported(struct server *srv);

/* --- sandboxes.c --- */

/** sandbox_state_name() - "creating", …; static. */
const char *sandbox_state_name(enum sandbox_state state);

/** sandbox_look_up() - by id, name or unique id prefix that is no snapshot's name, for who wants what the catalogue says of it and nothing from it; a new reference. NULL with @err set. */
struct sandbox *sandbox_look_up(struct server *srv, const char *what, struct err *err);

/** sandbox_find() - the same for everybody else: one that is still being recovered is waited for (sandbox_await()). Context: may wait; what was found before may be gone then. */
struct sandbox *sandbox_find(struct server *srv, const char *what, struct err *err);

/**
 * sandbox_await() - the start of the server may have gone on without @sb, whose keeper does not answer: wait until it was adopted, or is over (60 s).
 * Return: 0: it is like any other; or %ERR_BUSY, %ERR_SHUTTING_DOWN, %ERR_NOT_FOUND. Cheap when there is nothing to wait for. Context: may wait.
 */
int sandbox_await(struct sandbox *sb, struct err *err) attr_must_use;

/** sandbox_runs() - has it a keeper, or may it have one that has not answered yet? */
static inline bool sandbox_runs(const struct sandbox *sb)
{
	return sb->keeper != NULL || sb->awaited;
}

/** sandbox_by_id() - no new reference; NULL when there is none. */
struct sandbox *sandbox_by_id(struct server *srv, const char *id);

/** sandbox_by_name() - as sandbox_by_id(). */
struct sandbox *sandbox_by_name(struct server *srv, const char *name);

/** sandbox_ref() - one reference more; give it back with sandbox_unref(). */
struct sandbox *sandbox_ref(struct sandbox *sb);
/** sandbox_unref() - one reference less; the last one frees. NULL is allowed. */
void sandbox_unref(struct sandbox *sb);

/** sandbox_for_all() - @fn for each sandbox that there is now and that is still there when its turn comes; some at a time, each in a fiber of its own, where it may wait. Context: waits for all. */
void sandbox_for_all(
	struct server *srv, void (*fn)(struct sandbox *sb, const void *arg), const void *arg);

/** sandbox_lock() - wait for the right to change it (60 s). Fails with not_found when it was removed meanwhile. Context: waits. */
int sandbox_lock(struct sandbox *sb, struct err *err);
/** sandbox_lock_beside() - as sandbox_lock(), also beside a run's stream that only listens: for what leaves the keeper and the command alone. Context: waits. */
int sandbox_lock_beside(struct sandbox *sb, struct err *err);
/** sandbox_unlock() - let the next one change it. */
void sandbox_unlock(struct sandbox *sb);
/** sandbox_lend() - whoever holds its lock will only listen to a command, until sandbox_lend_no_more(). */
void sandbox_lend(struct sandbox *sb);
/** sandbox_lend_no_more() - and has the lock alone again. Context: waits for who has borrowed it. */
void sandbox_lend_no_more(struct sandbox *sb);
/** sandbox_is_lent() - is it? Of a run that is being started, or settled, that is known when it has been. Context: waits. */
bool sandbox_is_lent(struct sandbox *sb);
/** sandbox_not_lent() - for what would take the sandbox from under a run's command: not while that goes on. Return: 0, or negative with @err set. Context: waits. */
int sandbox_not_lent(struct sandbox *sb, struct err *err);

/** sandbox_enter() - change the state; asserts that the transition exists and emits the event (%EVENT_TYPE_COUNT: none), writes nothing. @data is stolen. */
void sandbox_enter(struct sandbox *sb, enum sandbox_state to, enum event_type type, json_t *data);

/** sandbox_will_tell() - event @type with @data (borrowed) of @sb follows from what is about to be written: the document announces it (api/telling.h). */
void sandbox_will_tell(struct sandbox *sb, enum event_type type, json_t *data);
/** sandbox_tell_again() - after a start of the server: what was announced so and is not in the journal is told now. */
void sandbox_tell_again(struct sandbox *sb);

/** sandbox_move() - change the state; asserts that the transition exists; writes the catalogue and emits the event (%EVENT_TYPE_COUNT: none). @data is stolen. */
int sandbox_move(struct sandbox *sb, enum sandbox_state to, enum event_type type, json_t *data,
	struct err *err);

/** sandbox_take_back() - the document is again what its shallow copy @was says: a commit failed. */
void sandbox_take_back(struct sandbox *sb, const json_t *was);

/** sandbox_save() - write the document to the catalogue. */
int sandbox_save(struct sandbox *sb, bool durable, struct err *err);

/** sandbox_object() - the API object, a new reference. */
json_t *sandbox_object(const struct sandbox *sb);

/** sandbox_epoch() - number of the epoch, from 1. */
uint64_t sandbox_epoch(const struct sandbox *sb);

/** sandbox_uid_base() - the id, as jobs see it, that uid 0 inside has on disk: of its slot; rootless 0. */
json_int_t sandbox_uid_base(const struct sandbox *sb);

/** struct sandbox_origin - what a new sandbox continues from; all borrowed. */
struct sandbox_origin {
	const char *snapshot, *parent; /* ids or NULL */
	json_t *layers;                /* array of layer ids, top first, or NULL */
	uint64_t since_ns; /* wall time at which the lineage's first sandbox was made; 0 = now */
	bool live;         /* with the processes of the snapshot */
	json_t *run;       /* what the run that it is made for needs to know, or NULL */
	const char *key,
		*key_hash; /* idempotency key of the request and its hash, or NULL: remembered with the sandbox itself */
};

/**
 * sandbox_new() - make a sandbox from a checked SandboxCreate object; claims a prepared keeper where there is one.
 * The caller starts it. One for a run is not in the catalogue yet: the caller writes it together with its exec (sandbox_write_new()), or discards it, before it waits.
 * Returns a reference, locked; NULL with @err set.
 */
struct sandbox *sandbox_new(struct server *srv, const json_t *request,
	const struct sandbox_origin *origin, bool keeper, struct err *err);

/**
 * sandbox_limits() - the limits of a sandbox made by @request (NULL: one that asks for none): what is asked for, else the defaults.
 * @kind: set to how those of the disk are held: "quota", "disk" (its own), "none". Static.
 * New reference, or NULL and %ERR_UNSUPPORTED when something was asked for that nothing can hold.
 */
json_t *sandbox_limits(
	const struct server *srv, const json_t *request, const char **kind, struct err *err);

/** sandbox_spec() - the specification for its keeper; a new reference. */
json_t *sandbox_spec(const struct sandbox *sb);

/** sandbox_start() - let a new or stopped sandbox run. @processes: it begins with them, and they run; NULL = with none. Locked. On failure it is `failed` (or removed, when @remove_on_failure). Context: waits. */
int sandbox_start(
	struct sandbox *sb, const struct live *processes, bool remove_on_failure, struct err *err);

/** sandbox_leave() - a new sandbox is not to run yet: stopped. It is removed when that cannot be written. Locked. */
int sandbox_leave(struct sandbox *sb, struct err *err);

/** sandbox_has_disk() - do its files lie on a disk of its own? Then they are captured by copying, never sealed by a rename. */
bool sandbox_has_disk(const struct sandbox *sb);

/** sandbox_make_disk() - before its keeper starts it: have its disk made, if it is to have one and has none yet. Context: waits. */
int sandbox_make_disk(struct sandbox *sb, struct err *err);

/** sandbox_started() - the keeper has answered to `start` with @ok: running from now on. Not written to the catalogue. */
void sandbox_started(struct sandbox *sb, const json_t *ok, bool warm);

/** sandbox_halt() - end its processes; afterwards stopped. Locked. Context: waits. */
int sandbox_halt(struct sandbox *sb, const char *reason, uint64_t grace_ms, struct err *err);

/** sandbox_remove() - remove it; halts it; its files go in the background. Locked. Context: waits. */
int sandbox_remove(struct sandbox *sb, struct err *err);

/** sandbox_expire() - remove @sb if it is `ephemeral` and has stopped, or failed. Return: 0, or what is in the way of that. Locked. Context: waits. */
int sandbox_expire(struct sandbox *sb, struct err *err);

/** sandbox_forget() - the first half of sandbox_remove(): from now on it is removed, whatever dies, and its name is free; only what is left of it has to be cleared. Locked. */
int sandbox_forget(struct sandbox *sb, struct err *err);

/** sandbox_clear() - the second half: its processes end, its files go. Locked. Context: waits. */
void sandbox_clear(struct sandbox *sb);

/** sandbox_trash_sweep() - a job has moved something into the pool's trash/ (`defer`): it goes behind the caller's back. */
void sandbox_trash_sweep(struct server *srv);

/** sandbox_trash_note() - what a keeper has made in the pool for @id is nobody's any more: it goes with what is deleted next. */
void sandbox_trash_note(struct server *srv, const char *id);

/** sandbox_trash_settle() - have it deleted soon. */
void sandbox_trash_settle(struct server *srv);

/** sandbox_trash_finish() - the server stops: files of removed sandboxes go now, not a moment later; what is left at @deadline_ns (CLOCK_MONOTONIC) the next start clears up. Context: waits. */
void sandbox_trash_finish(struct server *srv, uint64_t deadline_ns);

/** sandbox_stack() - directories of tree @n, top first, with the upper when @upper; ends with image or source. A new reference. */
json_t *sandbox_stack(const struct sandbox *sb, size_t tree, bool upper);

/** sandbox_live() - whose live directory its changes are in: its id; NULL when it has none (`bare`): it never ran, or was rewound and has not been started since. */
const char *sandbox_live(const struct sandbox *sb);

/** stack_of() - the same from the parts: @layers (ids, top first), @image, mount source (NULL for tree 0), @live (sandbox id or NULL). */
json_t *stack_of(struct server *srv, json_t *layers, const char *image, const char *source,
	const char *live, size_t tree);

/** sandbox_usage_now() - totals until now, of all its runs; a new reference, NULL with @err set when its keeper does not answer. Context: waits. */
json_t *sandbox_usage_now(struct sandbox *sb, struct err *err);

/** sandbox_policy_back() - a change of the policy that was begun and not ended is taken back in the document @doc of a sandbox. Return: was there one? */
bool sandbox_policy_back(json_t *doc);

/** sandbox_keeper_lost() - its keeper ended unasked. On the loop. */
void sandbox_keeper_lost(struct sandbox *sb);

/** sandboxes_load() - read them from the catalogue. */
int sandboxes_load(struct server *srv, struct err *err);
/** sandboxes_recover() - adopt those whose keeper lives, bury the others. What takes long with one that runs goes on behind the return, with its lock held: sandbox_await(). Context: waits. */
void sandboxes_recover(struct server *srv);

/* --- exec_begin.c --- */

/**
 * exec_begin() - write @e down (exec_created()) and have its keeper start it. @request: as for exec_request(); borrowed.
 * Return: 0, or an error: of a command that never began the exec is gone then, of one that may begin still (%ERR_TIMEOUT) or has begun (%ERR_UNAVAILABLE) it stays. Context: waits.
 */
int exec_begin(struct exec *e, const json_t *request, struct err *err) attr_must_use;

/* --- execs.c --- */

/** exec_new() - make the exec object from a checked ExecCreate; writes nothing yet. A reference, or NULL with @err set. */
struct exec *exec_new(struct sandbox *sb, const json_t *request, struct err *err);

/** exec_request() - the request for the keeper, from the ExecCreate that it was made from; a new reference. Once. */
json_t *exec_request(struct exec *e, const json_t *request);

/** env_check() - are the members names of environment variables? */
int env_check(const json_t *env, struct err *err);

/** exec_created() - write it to the catalogue and emit exec.created. */
int exec_created(struct exec *e, struct err *err);

/** exec_has_started() - its program runs, with the `pid` of @data: the keeper's answer, its event exec.started (whoever asked may have gone), or its row in what the keeper holds, or has brought along. */
void exec_has_started(struct exec *e, const json_t *data);

/** exec_answered() - the keeper's answer to `exec`: @rc as of the call. On failure the exec is gone afterwards. */
void exec_answered(struct exec *e, int rc, const json_t *ok, const struct err *err);

/** exec_was_refused() - the same of a keeper that could not start it and has nobody to answer: @error is what it would have said (err_from_json()). The exec is gone afterwards. */
void exec_was_refused(struct exec *e, const json_t *error);

/** exec_refused() - for who has waited for its end: did it never begin? Return: 0, or the error with @err set. */
int exec_refused(const struct exec *e, struct err *err) attr_must_use;

/** exec_object() - @e as the API shows it; the caller's. */
json_t *exec_object(const struct exec *e);

/**
 * exec_carried() - a running exec that came with the processes of a live snapshot; the id stays.
 * @doc: (borrowed) that of the source. @said: (borrowed) what the keeper says of it.
 *
 * Return: 0 or an error.
 */
int exec_carried(struct sandbox *sb, const json_t *doc, const json_t *said, struct err *err);

/** execs_attended() - channels of the execs that clients are attached to or come back to: their output waits for these when the processes of @sb come back. A new array. */
json_t *execs_attended(struct sandbox *sb);

/** execs_come_back() - @sb is about to be rewound to a state that has the execs of @docs: those of them that run do not end with its processes. NULL: it is not, after all. */
void execs_come_back(struct sandbox *sb, const json_t *docs);

/** execs_came_back() - the rewind is over: those that were to come back and have not, have ended. */
void execs_came_back(struct sandbox *sb);

/** exec_announce_end() - its end is about to be journalled, and behind that written: the document announces it (api/telling.h). @time_ns: wall, 0 = now; @status: borrowed. */
void exec_announce_end(struct exec *e, uint64_t time_ns, json_t *status);

/** exec_has_ended() - the keeper says so: the same, and what follows from it (steps, idleness). */
void exec_has_ended(struct exec *e, const json_t *status);

/** exec_by_channel() - no new reference; NULL when there is none. */
struct exec *exec_by_channel(struct sandbox *sb, uint16_t channel);
/** exec_by_id() - no new reference; NULL when there is none. */
struct exec *exec_by_id(struct sandbox *sb, const char *id);
/** exec_find() - by id or unique prefix, past ones too; a reference, or NULL with @err set. */
struct exec *exec_find(struct sandbox *sb, const char *what, struct err *err);
/** exec_ref() - one reference more; give it back with exec_unref(). */
struct exec *exec_ref(struct exec *e);
/** exec_unref() - one reference less; the last one frees. NULL is allowed. */
void exec_unref(struct exec *e);

/** exec_find_both() - sandbox and exec that the path of @call names; references to both. Return: 0, or an error. */
int exec_find_both(struct api_call *call, struct sandbox **sb, struct exec **e, struct err *err);

/** exec_find_awake() - the same, and the sandbox is awake (api/idle.h); end it with exec_let_rest(). Context: waits. */
int exec_find_awake(struct api_call *call, struct sandbox **sb, struct exec **e, struct err *err);
/** exec_let_rest() - the end of exec_find_awake(). */
void exec_let_rest(struct sandbox *sb, struct exec *e);

/** exec_not_running() - the error that says so: it has ended, or its sandbox is suspended. */
int exec_not_running(const struct exec *e, struct err *err);

/** exec_stdin_wake() - whoever writes to its standard input, or waits for it, looks again: it, or the server, ends. */
void exec_stdin_wake(struct exec *e);

/** execs_lost() - the sandbox ended: execs without a status get one. */
void execs_lost(struct sandbox *sb, const char *status, const char *reason);

/** execs_save_again() - in a transaction: the rows of those whose end is not in them yet. Return: 0 or an error. */
int execs_save_again(struct server *srv) attr_must_use;

/** execs_saved_again() - behind its commit. */
void execs_saved_again(struct server *srv);

/** execs_tell_again() - after a start of the server: what was announced (api/telling.h) and is not in the journal is told now; ends that are in the journal and not in their rows are taken from there. */
void execs_tell_again(struct sandbox *sb);

/** execs_forget() - drop all of them from memory. */
void execs_forget(struct sandbox *sb);

/** execs_adopt() - take over what the keeper says of them before it tells what waited. What it has forgotten, or has only just begun, is unheard of for now. */
void execs_adopt(struct sandbox *sb, const json_t *list);

/**
 * execs_settle() - all that waited has come: finish those that ended, as @list says (of execs_adopt()), and whose event the last server had journalled but not written to the catalogue. Those that are
 * still unheard of are asked for once more, in a fiber: which the keeper does not know then are lost.
 */
void execs_settle(struct sandbox *sb, const json_t *list);

/** execs_heard() - wait until none is unheard of, the keeper is gone, or @deadline_ns (CLOCK_MONOTONIC) is over. Context: waits. */
void execs_heard(struct sandbox *sb, uint64_t deadline_ns);

/** exec_is_away() - it goes on when its sandbox is resumed, or has been rewound, unless something else is made of it. */
bool exec_is_away(const struct exec *e);

/** exec_is_held() - does a keeper still hold its output? */
static inline bool exec_is_held(const struct exec *e)
{
	const struct keeper *k = e->sandbox->keeper;

	return k != NULL && !k->link.dead && !e->archived;
}

/** exec_frame_fn - gets a frame's payload; an error ends the replay. Context: may wait. */
typedef int exec_frame_fn(void *ctx, enum frame_type type, const void *payload, size_t n);

/**
 * exec_saved_replay() - STDOUT, STDERR and GAP frames of what is kept of an exec that no keeper holds any more, from offset @from on, then its STATUS.
 * Return: 0, -errno of the file, or what @fn returned.
 */
int exec_saved_replay(const struct exec *e, uint64_t from, exec_frame_fn *fn, void *ctx);

/** exec_saved_remove() - the kept output of all execs of a removed sandbox goes. */
void exec_saved_remove(struct server *srv, const char *sandbox);

/** exec_saved_sweep() - and that of all sandboxes that the catalogue does not know. */
void exec_saved_sweep(struct server *srv);

/** exec_step() - its number in the sandbox. */
uint64_t exec_step(const struct exec *e);

/** exec_row() - id of its row. */
const char *exec_row(const struct exec *e);

/** exec_loaded() - the exec that @doc (stolen) of the catalogue is, in no list; NULL when it is none. A reference. */
struct exec *exec_loaded(struct sandbox *sb, json_t *doc);

/** exec_drop() - it is none of its sandbox any more. */
void exec_drop(struct exec *e);

/** execs_load() - read the catalogue. */
int execs_load(struct server *srv, struct err *err);

/* --- runs.c --- */

/** runs_settle() - delete the rows of runs whose clients have their answers: before somebody asks for anything. */
void runs_settle(struct server *srv);

/** run_interrupt() - where @sb is lent by a run: end its command, which is asked first and has @grace_ms then (0: at once), so that the run is over and lets go of the lock. Return: was it lent? Context: waits. */
bool run_interrupt(struct sandbox *sb, uint64_t grace_ms);

/** run_goes_on() - is @sb lent by a run whose command has not ended? */
bool run_goes_on(struct sandbox *sb);

/** run_orphaned() - after a start: if @sb was made for a run, its client may come back; if it does not, the run is ended. */
void run_orphaned(struct sandbox *sb);

/* --- snapshots.c, snapshot_memory.c, snapshot_take.c, snapshot_settle.c --- */

/** snapshot_find() - by id, name, unique id prefix that is no sandbox's name, or as the step of a sandbox ("NAME@STEP"); NULL with @err set. Borrowed. */
struct snapshot *snapshot_find(struct server *srv, const char *what, struct err *err);
/** snapshot_by_name() - borrowed; NULL when there is none. */
struct snapshot *snapshot_by_name(const struct server *srv, const char *name);
/** snapshot_hold() - it and its processes stay, until snapshot_release(): for everybody who waits while using it. */
void snapshot_hold(struct snapshot *s);
/** snapshot_release() - undo one snapshot_hold(). Context: may wait; @s may be gone then. */
void snapshot_release(struct server *srv, struct snapshot *s);
/** snapshots_load() - read them from the catalogue. */
int snapshots_load(struct server *srv, struct err *err);

/** struct snapshot_wish - what kind of snapshot is wanted; all borrowed. */
struct snapshot_wish {
	const char *name; /* NULL: none; with one it is to be durable */
	bool durable;
	bool live;     /* with its processes */
	bool for_fork; /* nobody has asked for it: it goes when no sandbox continues from it */
	json_t *steps; /* numbers of the steps behind which it is taken (api/steps.h), or NULL */
	struct api_call *call; /* the request that asks for it, whose key remembers it; or NULL */
};

/** snapshots_tell_again() - after a start of the server: what they announced (api/telling.h) and is not in the journal is told now. */
void snapshots_tell_again(struct server *srv);

/** snapshot_takes_processes() - has @sb some that go along unless it is said otherwise? */
bool snapshot_takes_processes(const struct sandbox *sb);

/** snapshot_take() - snapshot of a locked sandbox. Context: waits. */
struct snapshot *snapshot_take(
	struct sandbox *sb, const struct snapshot_wish *wish, struct err *err);

/** snapshot_forget() - remove one that was made for the moment; failure is only logged. Context: waits. */
void snapshot_forget(struct server *srv, struct snapshot *s);

/**
 * snapshots_settle() - bring snapshots that have lived for some seconds to `durable` and then `verified`, one job at a time. What fails is tried
 * again, ever more seldom. Cheap when there is nothing to do; called now and then on the loop.
 */
void snapshots_settle(struct server *srv);

/**
 * snapshots_finish() - bring those to the disk whose processes would go with this server, until @deadline_ns (CLOCK_MONOTONIC; who is being written then is
 * waited for). Context: waits.
 */
void snapshots_finish(struct server *srv, uint64_t deadline_ns);

/** snapshot_save() - write the snapshot's document to the catalogue. @durable: it survives a crash of the machine when this returns. */
int snapshot_save(struct server *srv, struct snapshot *s, bool durable, struct err *err);

/** layers_forget() - have those of @layers (a list of ids, borrowed) removed that nothing needs. Context: waits. */
void layers_forget(struct server *srv, json_t *layers);

/* --- chains.c --- */

/** chain_shorten() - flatten the layers of @sb, which is locked and has no keeper yet, until the kernel can stack them. Cheap when they are few. Context: waits. */
int chain_shorten(struct sandbox *sb, struct err *err);

/** chains_settle() - flatten long chains of layers in the background. Cheap when there are none. */
void chains_settle(struct server *srv);

/* --- rewind.c --- */

/**
 * sandbox_unseal() - nothing came of the snapshot for which the files of @sb were to become @layer (index_making()): they are its own again. When they cannot be put back now
 * (full or broken disk) that is logged, and nobody starts it, looks at its files or takes another snapshot before sandbox_settle_files() has succeeded. Locked. Context: waits.
 */
void sandbox_unseal(struct sandbox *sb, const char *layer);

/** seals_kept() - the next server has found these seals (`kept` of the job `recover`) and could not take them back. Nothing clears them up; whose files they have waits as after sandbox_unseal(). */
void seals_kept(struct server *srv, const json_t *kept);

/** seals_known() - for the job `recover`: of each sandbox that does not run its own layers, top first, those above what it began with. A new reference. */
json_t *seals_known(struct server *srv);

/** seals_unmade() - of these own layers the job found nothing, for a power cut took the pool further back than the catalogue: each sandbox is as before them, and their snapshots, none of them durable, go. Context: waits. */
void seals_unmade(struct server *srv, const json_t *unmade);

/** sandbox_settle_files() - finish what stands between a sandbox that does not run and its files: a seal that was not taken back, a rewind. Locked. Cheap when there is nothing. Context: waits. */
int sandbox_settle_files(struct sandbox *sb, struct err *err) attr_must_use;

/** sandbox_check_files() - the same for who only reads; takes the lock if there is something to do. Context: waits. */
int sandbox_check_files(struct sandbox *sb, struct err *err) attr_must_use;

/** sandbox_settle_rewind() - the second half of a rewind, if it is not over: what was written before it goes. Locked, not running. Cheap when there is none. Context: waits. */
int sandbox_settle_rewind(struct sandbox *sb, struct err *err);

/* --- images.c --- */

/** image_find() - id of an image by id, prefix or name; "host" is itself. NULL with @err set. Borrowed. */
const char *image_find(struct server *srv, const char *what, struct err *err);
/** server_known_images() - ids of all images in the catalogue, also of those that cannot be read; NULL: nobody can say. A new reference. */
json_t *server_known_images(struct server *srv);
/** images_load() - read them from the catalogue. */
int images_load(struct server *srv, struct err *err);

/** images_tell_again() - as snapshots_tell_again(). */
void images_tell_again(struct server *srv);

/* --- diffs.c --- */

/** struct change_counts - files of a sandbox that differ from what it started with: in its cow mounts, of those that an apply would bring, and in its root. */
struct change_counts {
	int64_t mounted, applicable, elsewhere;
};

/** sandbox_changes() - count them; @all: in its root, too, when no cow mount changed. Return: 0 or -errno with @err set. Context: waits. */
int sandbox_changes(
	struct sandbox *sb, bool all, struct change_counts *ret, struct err *err) attr_must_use;

#endif
