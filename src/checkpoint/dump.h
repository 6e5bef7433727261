/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/dump.h - the dumper: looks at a stopped tree, refuses what cannot be carried over, and writes image and plan.
 *
 * Runs in a process of its own, exec'ed inside the sandbox's set-up namespace: capabilities over the sandbox, none over the host. One file per kernel
 * object (dump_tree, dump_threads, dump_timers …). A refusal names process, descriptor or address, and reason.
 */
#ifndef CAY_CHECKPOINT_DUMP_H
#define CAY_CHECKPOINT_DUMP_H

#include "base/err.h"
#include "checkpoint/dump_wire.h"
#include "checkpoint/image_write.h"
#include "checkpoint/keep.h"
#include "checkpoint/mappings.h"
#include "checkpoint/plan.h"
#include "checkpoint/tracee.h"
#include "codec/proctext.h"

/** struct dump_pages - which pages of a process are its own, by rising address. */
struct dump_pages {
	struct page_region *list;
	size_t n, at;
	struct page_region *guards; /* that nobody may touch; none of them is in ->list */
	size_t n_guards;
};

/** struct dump_queued - rows of the table of signals. */
struct dump_queued {
	uint32_t first, n;
	uint32_t length; /* of the queue, as the kernel counts: with what is in no row */
};

/** enum dump_told - what a process itself was asked, by its first thread. */
enum dump_told {
	TOLD_DEATH_SIGNAL,
	TOLD_SUBREAPER,
	TOLD_BARRIERS,
	TOLD_ITIMERS,
	TOLD_FDS = TOLD_ITIMERS + 3
};

/** enum dump_inherited - what a twin has as its process has it, so that it is asked when that goes on already. */
enum dump_inherited {
	INHERITED_DUMPABLE,
	INHERITED_SECUREBITS,
	INHERITED_THP_DISABLE,
	INHERITED_NO_NEW_CODE,
	INHERITED_MAY_EXTEND,
	INHERITED_BRK,
	INHERITED_ACTIONS /* of the signals that dump_has_action() names, by rising numbers */
};

/** struct dump_process - one process of the tree while it is being looked at. */
struct dump_process {
	struct tracee tracee;
	struct tracee twin; /* its copy-on-write copy; host 0 = there is none */
	struct mappings maps;
	struct buf smaps;      /* text of smaps, of itself or of its twin; empty = not read */
	struct proc_smap smap; /* the one that was looked at last, and where the next begins */
	const char *smap_at;
	bool smaps_of_twin;
	struct dump_pages pages;
	struct keep kept; /* what the twin does not have of them */
	struct proc_stat stat;
	struct plan_input place;
	struct image_process out;
	bool to_stop;               /* SIGSTOP waits for it */
	bool locks;                 /* memory, by mlock(2) */
	char *program;              /* what its program is called; NULL = not looked at yet */
	bool program_is_gone;       /* and has no such name any more */
	struct dump_process *base;  /* the first ancestor of whose memory it has some; NULL */
	bool inherited_from;        /* some other has memory of it */
	char *status;               /* text of /proc/PID/status */
	int *fds;                   /* its descriptors */
	size_t n_fds, fd_at;        /* and which of them is looked at */
	struct dump_queued *queued; /* of each thread, and then of the process */
	uint32_t quiet; /* what it need not be asked, because it was in advance: bits of asker.h */
	struct tracee_question *told;      /* what it has answered: dump_told() */
	struct tracee_question *inherited; /* and its twin, or itself: dump_inherited() */
	char name[16];
};

/** struct dump_known - a description that has its number, and one descriptor that refers to it. */
struct dump_known {
	uint64_t device, inode;
	uint64_t mapped_device,
		mapped_inode; /* of a file without a name: as /proc/PID/maps has it */
	int32_t pid, fd; /* in the source; fd -1 = opened for a mapping, a program or a directory */
	uint32_t writable;
	uint32_t index;
};

/** struct dump_terminal - a pair of pseudo terminals of which something was seen. */
struct dump_terminal {
	const struct dump_process *p; /* who has a descriptor of it, for refusals */
	int fd;                       /* and which */
	int master;                   /* ours, of d->copies or d->masters; -1 = nobody has one */
	int exclusive; /* its slave, of d->copies, where that may not be opened (TIOCEXCL); -1 */
	uint32_t
		controlling; /* 1 + description that becomes the terminal of a session, 0 = of none yet */
	struct image_terminal out;
};

#define DUMP_HANDLE_MAX 128

/** struct dump_watch - a watch of an inotify queue whose name has to be found. */
struct dump_watch {
	const struct dump_process *p; /* NULL = of one that runs, of whom only the file is known */
	int fd;
	uint64_t inode;
	dev_t device;
	char handle[2 * DUMP_HANDLE_MAX +
		    1]; /* of the file, in hexadecimal; empty where its file system has none */
	uint32_t row;
	char *path;  /* NULL = not found yet */
	bool unsure; /* it may be another's, of the same number */
};

/** struct dump_epoll - a watch of an epoll set. */
struct dump_epoll {
	const struct dump_process *p; /* who puts the set together again */
	int fd;                       /* of the set, its */
	int32_t target;               /* by what number */
	uint32_t row, nth;            /* among those by the same number */
	bool shared;                  /* there are others by that number */
	bool of_many;                 /* the set is large */
	uint64_t device, inode;       /* of what is watched */
};

/** struct dump_socket - a socket of which more is asked when all are known. */
struct dump_socket {
	struct dump_process *p; /* who has a descriptor of it, for refusals */
	int fd;                 /* and which */
	int copy;               /* ours, of d->copies */
	bool passed;            /* nobody has it: it was found in the queue of that */
	uint32_t index;         /* of its description */
};

/** struct dump_chain - the filters of one thread, as they were read. */
struct dump_chain {
	pid_t host;
	uint32_t n;
	size_t at;   /* in what was read */
	size_t like; /* the chain that is the same and comes first, itself mostly */
	struct filter_program *programs; /* of that one: as they are to be run */
	uint32_t quiet;     /* of that one: what is known of whoever has it (asker.h) */
	uint32_t first_row; /* in the image, IMAGE_NONE = not there yet */
};

/** struct dump_resting - a timerfd that is not set, as the kernel says; for a moment it says so, too, of one that is going off. dump_timers.c */
struct dump_resting {
	int copy; /* ours, of d->copies */
	uint32_t index;
};

/** struct dump_gone - a file that is mapped privately and has no name any more. dump_gone.c */
struct dump_gone {
	uint64_t device, inode; /* as of /proc/PID/maps */
	uint64_t size;          /* bytes that can be seen of it */
	int program;            /* open to be read, where it is somebody's program; -1 */
	bool whole;             /* all of it comes from there */
	uint32_t index;         /* its description, IMAGE_NONE = there is none yet */
	uint64_t content;       /* in the stash */
	unsigned char *have;    /* a byte for each page */
	char *kept;             /* by offset, pages that a twin does not have: */
	uint64_t kept_size;
	struct page_set kept_pages;
};

/** struct dump_name - a name of a mapping, and whether another file than that of @inode is at it. dump_names.c */
struct dump_name {
	uint64_t device, inode; /* as of /proc/PID/maps */
	char *text;             /* without an end */
	size_t size;
	bool replaced;
	bool regular;           /* it is such a file, and not of the sandbox's root alone */
	struct image_file file; /* of a regular one: what is there */
	bool sought; /* a removed one has been looked for under another name: @linked, NULL = it has none in its directory */
	char *linked;
};

/** struct dump_piece - where process @process maps @length bytes of some shared memory, from @offset of it on. dump_shared.c */
struct dump_piece {
	uint64_t device, inode; /* of the object, as of /proc/PID/maps */
	uint64_t offset, length, address;
	uint32_t process; /* its row */
};

#define DUMP_SHAREABLE 3 /* memory, descriptors, directories */

/** struct dump_sharers - rows of processes, in the order of what each has of one kind. dump_shares.c */
struct dump_sharers {
	uint32_t *rows;
	size_t n;
};

/** struct dump - one capture. */
struct dump {
	const struct dump_order *order;
	struct dump_process *processes;
	size_t n, n_stopped;       /* of them, those that dump_stop_all() has done with */
	struct tracee_pair *pairs; /* while twins are being made */
	size_t n_pairs;
	bool no_subreapers;   /* they are none for the moment */
	bool no_robust_lists; /* their threads have none for the moment */
	struct image_writer image;
	struct buf places;  /* files in memory file systems: dump_tmpfs.c */
	struct buf numbers; /* of open files, for the keeper: DUMP_NUMBERS_MAX */
	int32_t *taken;     /* numbers of all processes and threads, sorted */
	size_t n_taken;
	struct dump_known *known;
	size_t n_known;
	uint32_t *ordered; /* rows of them that are descriptors, by file and the order of kcmp(2) */
	size_t n_ordered;
	struct dump_watch *watches;
	size_t n_watches;
	struct buf
		foreseen; /* where they may be, as it was before the stop: paths, each with its NUL */
	struct dump_epoll *epolls;
	size_t n_epolls;
	struct dump_socket *sockets;
	size_t n_sockets;
	int *copies; /* ours of what programs have open: none when one of them runs. dump_copies.c */
	size_t n_copies;
	struct dump_resting *resting;
	size_t n_resting;
	struct dump_renamed *renamed; /* dump_unix.c */
	size_t n_renamed;
	struct dump_terminal *terminals;
	size_t n_terminals;
	int masters[TEMPLATE_SLOTS_MAX +
		    1]; /* of the keeper's terminals, in the order of their slots; behind them what was learned */
	size_t n_masters;
	struct shared_memories shared;
	struct buf pieces;        /* of it: struct dump_piece, by object and offset */
	uint64_t gather_until_ns; /* dump_gather(), 0 before the first */
	uint64_t memory_devices
		[5]; /* where all is memory, first the one of what is in no mount: dump_holes_begin() */
	size_t n_memory_devices;
	int32_t highest_fd;
	struct dump_gone *gone;
	size_t n_gone;
	uint64_t gone_bytes;
	struct dump_name
		*names; /* of files that are mapped, looked up once for all that map them */
	size_t n_names, next_name;
	pid_t left_behind; /* by seizer_stop(): all are let go again */
	struct buf seized; /* what seizer_stop() has left, or the keeper has learned */
	struct dump_chain *chains;
	size_t n_chains, next_chain;
	struct dump_sharers sharers[DUMP_SHAREABLE];
	struct buf owned; /* struct owned_lock, of the process that is being looked at */
	struct dump_relatives *relatives; /* of that process, while its regions are listed */
	bool frames_hidden;
	struct dump_examination
		*examination; /* set: they run, and what is refused is noted in it */
};

/** dump_main() - serve one capture on descriptors 3 and 4 (dump_wire.h). Return: exit status. */
int dump_main(void);

/** dump_refuse_at() - say that something of @p cannot be carried over. @fd: the descriptor, -1 = none. Return: negative. */
int dump_refuse_at(const struct dump_process *p, int fd, struct err *err, const char *fmt, ...)
	attr_printf(4, 5);

#define dump_refuse(p, err, ...) dump_refuse_at(p, -1, err, __VA_ARGS__)

/**
 * dump_note() - in an examination: note what @err refuses and clear it; what only changed while it was looked at is forgotten.
 * Return: true: go on with what comes next. false: this is a capture, and @err ends it.
 */
bool dump_note(struct dump *d, struct err *err);

/** dump_examine() - look at the running processes of @d->order, each of which stands still while its descriptors are looked at. @out: filled. */
void dump_examine(struct dump *d, struct dump_examination *out);

/**
 * dump_settle() - have the calls of @order's processes that the freezer has interrupted made again when they go on. Who is not reached in DUMP_SETTLE_NS, or cannot be stopped, is told
 * EINTR: how many they are, and how many wait in vfork(), is the sandbox's to decide. Context: their cgroup is frozen.
 */
void dump_settle(const struct dump_order *order);

/** dump_order() - the order in which the processes are made again. @head: gets what follows from it. @ret: on success struct plan_process of each and of helpers, free(). After dump_order_check(). */
int dump_order(const struct dump *d, struct plan *head, struct plan_process **ret,
	struct err *err) attr_must_use;

/** dump_order_check() - refuse whose place among the processes nobody can make again. After dump_tree(), while the threads are known. */
int dump_order_check(struct dump *d, struct err *err) attr_must_use;

/** dump_first_description() - where a fork's descriptions begin, behind all that are known. */
uint32_t dump_first_description(const struct dump *d);

/** dump_room_check() - refuse more open files than whoever makes a fork may have. When the mappings of all are known. */
int dump_room_check(const struct dump *d, struct err *err) attr_must_use;

/** dump_filtered() - into @r: of the processes of @order, which run, how many have system call filters of their own, and whether one is closed (tracee_is_closed()). */
void dump_filtered(const struct dump_order *order, struct dump_report *r);

/** dump_filters_load() - read what is known of filters at @fd, which is closed. Return: 0 or -errno. */
int dump_filters_load(struct dump *d, int fd) attr_must_use;

/** dump_filters_fini() - forget it. */
void dump_filters_fini(struct dump *d);

/** dump_filters_check() - refuse filters of the program's own that are not known. Before any call is made in @p. */
int dump_filters_check(struct dump *d, struct dump_process *p, struct err *err) attr_must_use;

/** dump_filters() - those of thread @i of @p into its row @out. After dump_filters_check(). */
void dump_filters(struct dump *d, struct dump_process *p, size_t i, struct image_thread *out);

/** dump_filters_end() - after all threads of @p: which all of them have. */
void dump_filters_end(struct dump *d, struct dump_process *p);

/** dump_creds_check() - ids and capabilities, which /proc answers; refuses filters of the program's own that are not known. */
int dump_creds_check(struct dump *d, struct dump_process *p, struct err *err) attr_must_use;

/**
 * dump_shares_check() - refuses threads that do not share what threads share, and processes that share what only threads can in a fork, with any that was checked before @p. Of
 * living processes, each once; of those that stand still when their descriptors are listed, of those that run before any are.
 */
int dump_shares_check(struct dump *d, const struct dump_process *p, struct err *err) attr_must_use;

/** dump_shares_fini() - forget who was checked. */
void dump_shares_fini(struct dump *d);

/** dump_mappings_room() - how much memory in separate places one process of ours can hold (vm.max_map_count), beside what it has itself. */
uint64_t dump_mappings_room(void);

/** dump_read_maps() - read the mappings of @p. While it stands still, before there is memory for calls in it, which is none of its own. */
int dump_read_maps(struct dump_process *p, struct err *err) attr_must_use;

/** dump_maps() - refuse the mappings of @p that cannot be carried over; reads them where dump_read_maps() has not. When the files of all are known. */
int dump_maps(struct dump *d, struct dump_process *p, struct err *err) attr_must_use;

#define DUMP_GONE " (deleted)" /* what /proc writes behind the name that a file had */

/** dump_is_gone() - does @name of /proc end so? A file may be called so, too: dump_is_called(), dump_names(). */
bool dump_is_gone(const char *name, size_t n);

/**
 * dump_names() - call the mappings of @p by the name that their file has, exactly, and say which of those that end in "(deleted)" are called so (->literal). What was
 * replaced or removed since it was mapped is called "(deleted)" also where the kernel does not: of a file that an overlay has from another overlay (the host's root:
 * sandbox/overlay.h) the kernel tells the name that it has in that one, which nobody inside ever changes. And by its name what the kernel calls deleted though a memory file
 * system has it under another (sem_open(3) maps a file, links it to where it belongs, and removes the first name): others map it by that one, or will. After dump_tmpfs().
 *
 * Return: 0, or an error: a mapping is there no more, or its name is longer than any path.
 */
int dump_names(struct dump *d, struct dump_process *p, struct err *err) attr_must_use;

/** dump_names_fini() - forget all names. */
void dump_names_fini(struct dump *d);

/**
 * dump_file_stays() - note in description @index, of a file by its name that @d has seen mapped when all stood still, which file that was. Of those
 * that belong to the sandbox's root alone nothing is: they come with its layers. @may_change: who maps it sees what others write to it.
 */
void dump_file_stays(struct dump *d, uint32_t index, bool may_change);

/** dump_is_gone_file() - does @m map a file that had a name in some file system? */
bool dump_is_gone_file(const struct proc_map *m);

/** dump_readable() - bytes from the start of @m that are within its file. */
uint64_t dump_readable(const struct dump_process *p, const struct proc_map *m);

/** dump_gone_note() - @p maps such a file privately: how much of it there is. Of all mappings, before dump_gone_description(). Return: 0 or an error. */
int dump_gone_note(struct dump *d, struct dump_process *p, const struct proc_map *m,
	struct err *err) attr_must_use;

/** dump_gone_keep() - copy what @p maps so and its twin does not, but for what was copied of another. While @p is stopped, after its twin was made and its pages are listed. Return: 0 or -errno. */
int dump_gone_keep(struct dump *d, const struct dump_process *p) attr_must_use;

/** dump_gone_program() - after all mappings of @p: its program, if that is such a file. Return: 0 or an error. */
int dump_gone_program(struct dump *d, struct dump_process *p, struct err *err) attr_must_use;

/** dump_gone_description() - description of the file that @m maps, without its pages unless it is a program. */
uint32_t dump_gone_description(struct dump *d, const struct proc_map *m);

/** dump_gone_exe() - description of the program of @p, which dump_gone_program() has found. */
uint32_t dump_gone_exe(struct dump *d, const struct dump_process *p);

/** dump_gone_pages() - @start..@end of @m hold what is in the file: have those copied that nobody has brought yet. */
void dump_gone_pages(struct dump *d, struct dump_process *p, const struct proc_map *m,
	uint64_t start, uint64_t end);

/** dump_mapped_identity() - what /proc/PID/maps says of a mapping of the regular file @fd; both 0 when it cannot be mapped. */
void dump_mapped_identity(int fd, uint64_t *ret_device, uint64_t *ret_inode);

/** dump_gone_open() - description of the file that @m maps, if somebody has it open; IMAGE_NONE. */
uint32_t dump_gone_open(const struct dump *d, const struct proc_map *m);

/** dump_gone_fini() - forget all. */
void dump_gone_fini(struct dump *d);

/** dump_shared_open() - description of the memory without a name that @m maps, if somebody has it open; IMAGE_NONE. When the files of all are known. */
uint32_t dump_shared_open(const struct dump *d, const struct proc_map *m);

/** dump_shared_check() - refuse shared memory of which somebody maps a part, and nobody what lies before that. Once, when the mappings of all are known. */
int dump_shared_check(struct dump *d, struct err *err) attr_must_use;

/** dump_shared_copy() - copy all shared memory that no descriptor refers to. After dump_shared_check(), while all stands still. */
int dump_shared_copy(struct dump *d, struct err *err) attr_must_use;

/** dump_source() - where memory, dispositions and ids of @p are read: its twin, or itself while it is stopped. */
static inline struct tracee *dump_source(struct dump_process *p)
{
	return p->twin.host != 0 ? &p->twin : &p->tracee;
}

/**
 * dump_stop_all() - stop every process of the order, also when one cannot be stopped: they have been frozen, which ends some calls, and it takes a tracer to make these again.
 * Context: their group is frozen. Return: 0 or an error.
 */
int dump_stop_all(struct dump *d, struct err *err) attr_must_use;

/** dump_stop_rest() - those that dump_stop_all() was torn out of before it came to them, for the same reason. */
void dump_stop_rest(struct dump *d);

/** dump_zombies() - add the ended children of those that are stopped. After dump_stop_all(). Return: 0 or an error. */
int dump_zombies(struct dump *d, struct err *err) attr_must_use;

/** dump_text() - read stat and status of @p; again, when it may be looked at. */
int dump_text(struct dump_process *p, struct err *err) attr_must_use;

/** dump_tree() - parents, sessions, groups, leaves, of every process. Fills ->place. */
int dump_tree(struct dump *d, struct err *err) attr_must_use;

/**
 * dump_ask() - ask all processes what only they can tell, at the same time. Before it nothing has run in them: what is refused of programs in which no call may be made, and
 * what is queued for them, is looked at before.
 */
int dump_ask(struct dump *d, struct err *err) attr_must_use;

/**
 * dump_ask_sources() - ask all twins, or where there are none the processes, for what they have in common, at the same time. Return: 0 or an error, also when the
 * answer to a question is an error.
 */
int dump_ask_sources(struct dump *d, struct err *err) attr_must_use;

/** dump_inherited() - what was answered to @what. After dump_ask_sources(). */
const struct tracee_question *dump_inherited(
	const struct dump_process *p, enum dump_inherited what);

/** dump_ask_end() - forget what @p was asked. */
void dump_ask_end(struct dump_process *p);

#define DUMP_QUESTIONS_MAX 128

/** dump_questions() - all that thread @i of @p is asked, before its descriptors are known. Return: how many, a few less than %DUMP_QUESTIONS_MAX at most. */
size_t dump_questions(
	const struct dump_process *p, size_t i, struct tracee_question ret[DUMP_QUESTIONS_MAX]);

/** dump_told() - what @p has answered to @what (of TOLD_FDS: to that of its first descriptor, those of the others stand behind it). */
const struct tracee_question *dump_told(const struct dump_process *p, enum dump_told what);

/** dump_told_thread() - what thread @i has answered: its alternate stack, and behind it its tid address and its timer slack. */
const struct tracee_question *dump_told_thread(const struct dump_process *p, size_t i);

/** dump_list_fds() - set ->fds of @p. Return: 0 or -errno. */
int dump_list_fds(struct dump_process *p) attr_must_use;

/** dump_attributes() - what a twin does not inherit. */
int dump_attributes(struct dump_process *p, struct err *err) attr_must_use;

/** dump_creds() - limits and other attributes of @p. After dump_creds_check() and dump_ask_sources(). */
int dump_creds(struct dump_process *p, struct err *err) attr_must_use;

/** dump_threads_check() - refuse threads in which no call can be made: 32-bit code. Before any call is made in @p. */
int dump_threads_check(struct dump_process *p, struct err *err) attr_must_use;

/** dump_threads() - registers and what belongs to one thread. */
int dump_threads(struct dump *d, struct dump_process *p, struct err *err) attr_must_use;

/** dump_signals() - interval timers, and what was queued for the process. */
int dump_signals(struct dump_process *p, struct err *err) attr_must_use;

/** dump_timers() - POSIX timers, in the order of their numbers. @stopped: @p, with its threads. Of an examination when they go off is not asked. */
int dump_timers(struct dump *d, struct dump_process *p, const struct tracee *stopped,
	struct err *err) attr_must_use;

/** dump_has_action() - has @p a disposition for @signal that has to be asked for? */
bool dump_has_action(const struct dump_process *p, unsigned int signal);

/** dump_actions() - dispositions. After dump_ask_sources(). */
int dump_actions(struct dump_process *p, struct err *err) attr_must_use;

/** dump_queue() - what is queued for thread @tid of @p, or for its whole process. Return: 0 or -errno. */
int dump_queue(struct dump *d, struct dump_process *p, int32_t tid, bool whole_process,
	struct dump_queued *ret) attr_must_use;

/** dump_timerfds_end() - at the end of the pause: those that seemed not to be set, and have gone off. 0 or an error. */
int dump_timerfds_end(struct dump *d, struct err *err) attr_must_use;

/** dump_fired() - after the timers of all: timers run while their processes stand still. One that goes off once, and did so between the two readings, is in neither: %ERR_BUSY. */
int dump_fired(struct dump *d, struct err *err) attr_must_use;

/** dump_stopped() - after all processes: who is stopped by a signal, or about to be, and whether its parent has heard of it. */
int dump_stopped(struct dump *d, struct err *err) attr_must_use;

/** dump_last_number() - the process number that the sandbox has used last: that of the last twin. Where there are none nothing but the kernel's counter has it, and one of ours takes it. Return: it or -errno. */
int32_t dump_last_number(const struct dump *d);

/** dump_by_host_pid() - the process, or NULL. */
struct dump_process *dump_by_host_pid(const struct dump *d, pid_t host);

/** dump_has_pid() - is @inner the number of a process of the sandbox, its init included? */
bool dump_has_pid(const struct dump *d, uint64_t inner);

/** dump_inner_group() - the number inside of a process group that the host calls @host, whose leader may have gone; 0 when nobody is in it any more. */
int32_t dump_inner_group(const struct dump *d, pid_t host);

/** dump_moment() - list the pages of @p, copy what its twin does not have. While @p is stopped, after its twin was made. */
int dump_moment(struct dump *d, struct dump_process *p, struct err *err) attr_must_use;

/** dump_is_shared_memory() - does @m map shared memory that is in no file system under a name? */
bool dump_is_shared_memory(const struct proc_map *m);

/** dump_holes_begin() - from now on the holes of shared memory are known, and are left alone. Idempotent. */
void dump_holes_begin(struct dump *d);

/** dump_is_in_memory() - is all memory on @device, as /proc/PID/maps names it? */
bool dump_is_in_memory(const struct dump *d, uint64_t device);

/** dump_holes_known() - while process @host runs: which pages of what is not lent it has in its page tables. @maps: its mappings. After dump_lend(). */
void dump_holes_known(struct dump *d, pid_t host, const struct mappings *maps);

/** dump_holes_add() - of what mincore(2) has answered about @n pages, from @offset of an object on, those that are there into @into. Return: all are. */
bool dump_holes_add(const unsigned char *vector, size_t n, uint64_t offset, struct page_set *into);

/** dump_tmpfs_devices() - note those of the sandbox's memory file systems. */
void dump_tmpfs_devices(struct dump *d);

/** dump_shared_see() - while process @host runs: note the shared memory that is in @maps. */
void dump_shared_see(struct dump *d, pid_t host, const struct mappings *maps);

/** dump_shared_guess() - after that, while it runs: the same, as far as it is large, is to be copied by a thread as soon as all stands still. */
void dump_shared_guess(struct dump *d, pid_t host, const struct mappings *maps);

/**
 * dump_gather() - have the dense memory that process @host, which runs, has to itself put into huge pages. @maps: its mappings. @deadline_ns: of all such calls
 * of a capture, 0 before the first. It helps as far as it goes.
 */
void dump_gather(pid_t host, const struct mappings *maps, uint64_t *deadline_ns);

/** dump_lend() - while they run: have the shared memory that was seen open here, as far as the template may open it. After dump_shared_guess() of all. */
void dump_lend(struct dump *d);

/** dump_hand_memories() - open for the template the memory of those whose entries in /proc it may not open itself, before it is told what to copy. */
void dump_hand_memories(const struct dump *d);

/** dump_flags_read() - read the flags of the mappings of @p, as they are in @from: itself, or its twin. Once. Return: 0 or -errno. */
int dump_flags_read(struct dump_process *p, struct tracee *from) attr_must_use;

/** dump_flags() - flags (enum image_region_flag) of the mapping @m of @p. @may_write: it can be made writable. After dump_flags_read(), by rising addresses. */
uint32_t dump_flags(struct dump_process *p, const struct proc_map *m, bool *may_write);

/** enum dump_likeness - what a process has where a relative may have the same. */
enum dump_likeness {
	DUMP_SAME, /* both have it */
	DUMP_OWN,  /* nobody else has it so */
	DUMP_NONE  /* it has nothing, and the relative has something */
};

/** struct dump_part - pages that follow each other. */
struct dump_part {
	uint64_t start, end;
	enum dump_likeness is;
};

/** struct dump_ancestor - somebody whom a process may have memory of. */
struct dump_ancestor {
	struct dump_process *process;
	int memory; /* -1: not opened yet, or it cannot be */
};

#define DUMP_ANCESTORS_MAX 16U

/** struct dump_relatives - a process beside those that it comes from. */
struct dump_relatives {
	struct dump_process *process;
	bool *frames_hidden; /* nobody may compare the numbers of page frames: of all processes of the capture */
	int memory;
	struct dump_ancestor list[DUMP_ANCESTORS_MAX]; /* its parent first */
	size_t n;
	struct buf
		parts; /* of the region that was compared last: struct dump_part, by rising addresses */
	uint64_t same, changed;                          /* pages of it */
	uint64_t in_one_frame[TEMPLATE_SAME_PAGES / 64]; /* of the pages that are compared now */
	char bytes[2][65536];
};

/** dump_relatives_begin() - find those whom @p comes from: nobody, where memory cannot be read or others wait for that. @ret: dump_relatives_end() it. */
void dump_relatives_begin(struct dump *d, struct dump_process *p, struct dump_relatives *ret);

/** dump_relatives_end() - close what was opened. */
void dump_relatives_end(struct dump_relatives *r);

/** dump_relatives_find() - the nearest that has content of its own where @mine begins. @ret_theirs: in which region; valid until one is added. Return: NULL: nobody. */
struct dump_ancestor *dump_relatives_find(const struct dump *d, struct dump_relatives *r,
	const struct image_region *mine, const struct image_region **ret_theirs);

/** dump_relatives_compare() - list the parts of @mine. Return: false: it is not worth while, or cannot be read. */
bool dump_relatives_compare(struct dump_relatives *r, struct dump_ancestor *a,
	const struct image_region *mine, const struct image_region *theirs);

/** dump_relatives_patch() - the nearest that has changed these pages of a file, and to the same. @patch: gets the place in its stash. Return: NULL: nobody, or they are not the same. */
struct dump_ancestor *dump_relatives_patch(const struct dump *d, struct dump_relatives *r,
	const struct image_region *mine, struct image_patch *patch);

/** dump_relatives_share() - the process has memory of @a. */
void dump_relatives_share(
	struct dump_process *p, struct dump_relatives *r, struct dump_ancestor *a);

/** dump_content() - let @out have the bytes of @memory that are there. It does not change any more. */
void dump_content(
	struct dump *d, const struct shared_memory *memory, struct image_description *out);

/** dump_memory() - regions, changed pages, brk and the program. Refuses nothing: @p may run again. */
int dump_memory(struct dump *d, struct dump_process *p, struct err *err) attr_must_use;

/** dump_files() - descriptors and their descriptions; also the working directory. */
int dump_files(struct dump *d, struct dump_process *p, struct err *err) attr_must_use;

/** dump_tmpfs() - what is in the memory file systems of the sandbox. */
int dump_tmpfs(struct dump *d, struct err *err) attr_must_use;

/** dump_tmpfs_name() - a name that the file of @m has in one of them, to be freed; NULL when it has none there. After dump_tmpfs(). */
char *dump_tmpfs_name(const struct dump *d, const struct proc_map *m);

/** dump_sysv() - System V objects of the sandbox; refuses what cannot be known of them. Joins the sandbox's ipc namespace for good. */
int dump_sysv(struct dump *d, struct err *err) attr_must_use;

/** dump_sysv_find() - row of the segment @id, or IMAGE_NONE. */
uint32_t dump_sysv_find(const struct dump *d, uint64_t id);

/** dump_files_end() - after all processes: pipes and pairs whose other end was found or not. */
int dump_files_end(struct dump *d, struct err *err) attr_must_use;

/**
 * dump_watches_room() - make room for copies that have the numbers of what is watched. While the dumper has one thread: with more it takes as long as a
 * pause (the kernel waits until nobody can read the smaller table).
 */
void dump_watches_room(void);

/** dump_inotify_foresee() - while they run: find the names of what is watched, however long that takes; dump_inotify_end() looks there first. */
void dump_inotify_foresee(struct dump *d);

/** dump_inotify_fini() - forget watches, and what was foreseen. */
void dump_inotify_fini(struct dump *d);

/** dump_inotify_end() - after all processes: find the names of what is watched. */
int dump_inotify_end(struct dump *d, struct err *err) attr_must_use;

/** dump_terminals_end() - after all processes: what is known and waits in each terminal, and which sessions have one. */
int dump_terminals_end(struct dump *d, struct err *err) attr_must_use;

/** dump_copy() - keep a copy of @fd, ours of what a program has open, until dump_copies_close(). Return: its number, or -errno. */
int dump_copy(struct dump *d, int fd) attr_must_use;

/** dump_copy_keep() - keep @fd itself so, which is taken. Return: it. */
int dump_copy_keep(struct dump *d, int fd);

/** dump_copies_close() - close all that is kept so: a program that closes its own must find itself the last. What was kept by its number leads nowhere any more. Idempotent. */
void dump_copies_close(struct dump *d);

/** dump_remember() - description @index is that of a file; the rest: see struct dump_known. Return: what is known of it, until the next one is. */
struct dump_known *dump_remember(
	struct dump *d, uint64_t device, uint64_t inode, int32_t pid, int32_t fd, uint32_t index);

/** dump_file_by_path() - description of the file at @path inside, opened to be written when @writable. */
uint32_t dump_file_by_path(
	struct dump *d, const char *path, size_t n, bool writable, bool directory);

#endif
