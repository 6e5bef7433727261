/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/image.h - a stopped process tree as bytes: what the dumper writes and a restored process reads.
 *
 * Two things, kept apart on purpose (docs/design/0006). The *plan* is numbers only and is all that a privileged process reads. The *image* is
 * everything else and is read by processes that have entered the payload's user namespace. Both are a header and tables of fixed-size records; offsets
 * count from the start of the image; there are no pointers. This header is used by a freestanding program: nothing but types.
 */
#ifndef CAY_CHECKPOINT_IMAGE_H
#define CAY_CHECKPOINT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMAGE_MAGIC 0x494d4143U /* "CAMI" */
#define PLAN_MAGIC  0x4c504143U /* "CAPL" */
#define IMAGE_VERSION \
	13U /* grows, too, with what a dumper and a template say to each other (template_wire.h) */

/*
 * Addresses of the restorer. Above 2^46, below which allocators choose addresses at random, and what they may reserve there (V8: a terabyte, and what guards it), and below where the kernel
 * puts programs (0x555555554000). A program with a mapping in here is refused.
 */
#define WINDOW_START   0x420000000000ULL /* the program cay-template is linked here */
#define WINDOW_RESIDUE 0x428000000000ULL /* last instructions and signal frames: stay mapped */
#define WINDOW_SHARED  0x429000000000ULL /* struct between the processes of one fork */
#define WINDOW_IMAGE   0x42a000000000ULL
#define WINDOW_PLAN    0x42b000000000ULL
#define WINDOW_FILTER  0x42c000000000ULL
#define WINDOW_COPY \
	0x42d000000000ULL /* while the template moves itself; later the stacks of new threads */
#define WINDOW_VDSO \
	0x42e000000000ULL /* vvar and vDSO, as the kernel put them, until each process moves them */
#define WINDOW_CHUNKS \
	0x42f000000000ULL /* of memory from disk: the table of lengths, while it is read */
#define WINDOW_STOCK 0x430000000000ULL /* memory that the template has made ahead of time */
#define WINDOW_PULL  WINDOW_STOCK      /* who takes memory from disk has no stock, but tables */
#define WINDOW_STASH 0x440000000000ULL /* the memory of all processes, each in its own range */
#define WINDOW_END   0x550000000000ULL

#define RESIDUE_FRAME_SIZE 16384U /* per thread: ucontext, siginfo, XSAVE area */
#define RESIDUE_XSAVE      1024U  /* where in it the last of them begins, and goes to its end */
#define IMAGE_PAGE         4096U
#define IMAGE_SIGNALS      64U
#define IMAGE_LIMITS       16U
#define IMAGE_NONE         0xffffffffU
#define IMAGE_RIGHTS_MAX   253U       /* descriptors with one message; of the kernel: SCM_MAX_FD */
#define PLAN_FILES_MAX     (1U << 20) /* numbers of descriptors, and descriptions */

/* --- the plan --- */

enum plan_flag {
	PLAN_LEADER = 1,       /* setsid() */
	PLAN_GROUP = 2,        /* leads a process group that is not its session's */
	PLAN_ZOMBIE = 4,       /* ends as it did, behind its helpers */
	PLAN_HELPER = 8,       /* is in no image: ends when its members have joined */
	PLAN_OLD_SESSION = 16, /* must be cloned before its parent's setsid() */
	PLAN_NO_TERMINAL = 32, /* has left the terminal of its session */
	PLAN_STOPPED = 64,     /* by a signal: goes on when it is told to */
	PLAN_ALONE = 128,      /* one thread, which runs at once: pages may come later */
	PLAN_ADOPTS =
		256, /* takes the children of helpers that are late: it is a subreaper (prctl(2)) before they end, and when all others have */
	PLAN_LATE =
		512, /* a helper of whose children somebody is to be the parent who takes them */
	PLAN_NO_SYSV = 1024, /* the image has no System V objects: all have it, or none */
};

/*
 * In the flags of a process, from this bit on: 1 + the signal that its parent gets when it ends (clone(2); 0 = none); 0 = SIGCHLD. Who is made by T', or becomes another's child, has
 * that.
 */
#define PLAN_SIGNAL 16

/** struct plan_process - one process to clone, parents before children. */
struct plan_process {
	int32_t pid;
	uint32_t parent; /* index, or IMAGE_NONE: child of T' */
	int32_t group;   /* process group to join, 0 = leave it */
	uint32_t flags;
	uint32_t leaf;      /* cgroup leaf of a child of T' */
	int32_t status;     /* zombies: as of wait(2) */
	uint32_t image;     /* index in the image's processes, IMAGE_NONE = none */
	uint32_t terminal;  /* 1 + description of its session's terminal, 0 = none */
	int32_t foreground; /* leaders: process group that has the terminal */
	int32_t base; /* the first ancestor whose stash has some of its memory too, those between may as well: by its pid; 0 = none */
	uint64_t stash_start, stash_end;
};

/** struct plan_map - a mapping of the template. */
struct plan_map {
	uint64_t address, length;
	uint32_t grows_down;
	uint32_t content; /* of a description: the opener reads it */
};

/** struct plan_copy - bytes of a source process. */
struct plan_copy {
	int32_t pid; /* in the host's pid namespace */
	uint32_t reserved;
	uint64_t from, to, length;
};

/* below it are the numbers at which a fork gets descriptions, many at once */
#define PLAN_FIRST_DESCRIPTION 16

#define PLAN_FILES_ROOM 1024U /* for descriptors that are no descriptions */

/** plan_files() - below which number all descriptors of a fork are while it is made: the programs', the descriptions, and once more those in the opener. */
static inline uint64_t plan_files(uint32_t first_description, uint64_t n_descriptions)
{
	return first_description + 2 * n_descriptions + PLAN_FILES_ROOM;
}

struct plan {
	uint32_t magic, version;
	uint32_t n_processes, n_maps, n_copies, n_leaves;
	uint32_t n_descriptions,
		first_description; /* description i is descriptor first_description + i; PLAN_FIRST_DESCRIPTION or more */
	uint32_t n_slots;   /* descriptors that the fork's keeper brings */
	int32_t helper_pid; /* free in the image: writes ns_last_pid */
	int32_t last_pid;
	int32_t opener_pid; /* free in the image too */
			    /* then: plan_process[], plan_map[], plan_copy[] */
};

/* --- the image --- */

enum image_table {
	TABLE_PROCESSES,
	TABLE_THREADS,
	TABLE_REGIONS,
	TABLE_PATCHES,
	TABLE_GUARDS,
	TABLE_DESCRIPTIONS,
	TABLE_FDS,
	TABLE_WATCHES,
	TABLE_SIGINFOS,
	TABLE_TIMERS,
	TABLE_SYSV,
	TABLE_TERMINALS,
	TABLE_LOCKS,
	TABLE_NODES,
	TABLE_PIECES,
	TABLE_NOTIFICATIONS,
	TABLE_PACKETS,
	TABLE_RIGHTS,
	TABLE_FILTERS,
	TABLE_OPTIONS,
	TABLE_BYTES,
	TABLE_COUNT
};

struct image_span {
	uint64_t offset; /* within TABLE_BYTES */
	uint64_t length;
};

struct image_header {
	uint32_t magic, version;
	uint64_t size;
	struct {
		uint64_t offset, count;
	} tables[TABLE_COUNT];
};

struct image_sigaction {
	uint64_t handler, flags, restorer, mask;
};

enum image_stopped {
	IMAGE_RUNS,
	IMAGE_STOPPED,      /* by a signal */
	IMAGE_STOPPED_HEARD /* and its parent has heard of it */
};

struct image_process {
	int32_t pid;
	uint32_t first_thread, n_threads; /* the first is the leader */
	uint32_t first_region, n_regions;
	uint32_t first_guard, n_guards;
	uint32_t first_fd, n_fds;
	uint32_t first_watch, n_watches;
	uint32_t first_siginfo, n_siginfos; /* queued for the whole process */
	uint32_t first_timer, n_timers;
	uint32_t first_lock, n_locks; /* that the process itself owns */
	uint32_t exe, cwd, root;      /* descriptions; root IMAGE_NONE = as it is */
	uint32_t uid[4], gid[4];      /* real, effective, saved, file system; as seen inside */
	struct image_span groups;     /* uint32_t each */
	uint64_t caps[5];             /* inheritable, permitted, effective, bounding, ambient */
	uint32_t securebits, dumpable, parent_death_signal, subreaper;
	uint32_t umask, thp_disable, personality;
	uint32_t no_new_code; /* as of PR_SET_MDWE */
	uint32_t barriers; /* kinds of membarrier(2) that it is registered for: the calls that do */
	uint32_t filtered; /* has the sandbox's filter */
	uint32_t own_filters;    /* some thread has others above it */
	uint32_t shared_filters; /* so many of those all threads have */
	struct {
		uint64_t soft, hard;
	} limits[IMAGE_LIMITS];
	struct image_sigaction actions[IMAGE_SIGNALS];
	struct {
		uint64_t interval_us, value_us;
	} itimers[3];
	struct {
		uint64_t start_code, end_code, start_data, end_data, start_brk, brk, start_stack,
			arg_start, arg_end, env_start, env_end;
	} mm;
	struct image_span auxv;
	uint64_t unused;  /* left out when IMAGE_VERSION grows */
	uint32_t stopped; /* enum image_stopped */
	uint32_t reserved;
	uint64_t may_extend; /* register states that it has asked for and may use (arch_prctl(2)) */
};

struct image_thread {
	int32_t tid;
	uint32_t first_siginfo, n_siginfos;
	uint32_t robust_length;
	uint64_t registers[27]; /* struct user_regs_struct */
	struct image_span xsave;
	uint64_t mask;
	uint64_t altstack, altstack_size;
	uint32_t altstack_flags, rseq_length, rseq_signature;
	uint32_t policy, priority, reset_on_fork; /* as of sched_setattr(2) */
	int32_t nice;
	uint32_t io_priority; /* as of ioprio_set(2), 0 = it follows from the others */
	uint64_t timer_slack_ns;
	struct image_span
		processors; /* it may run on, as of sched_setaffinity(2); empty = on all that a sandbox may */
	uint64_t tid_address, robust_list, rseq;
	uint32_t first_filter, n_filters; /* above the sandbox's own, oldest first */
	uint32_t no_new_privs;
	uint32_t
		restart; /* it stands before the call that was interrupted: with so much, as an errno of the kernel's own (512 to 514); 0 = it does not */
	char name[16];
};

/** enum image_install - by what those below a filter let it be installed, where they count. Where they are suspended it is seccomp(2). */
enum image_install { INSTALL_SECCOMP, INSTALL_PRCTL, INSTALL_NOT };

/** struct image_filter - a system call filter that a program made. */
struct image_filter {
	struct image_span code; /* struct sock_filter each */
	uint32_t log;           /* it says so when it refuses */
	uint32_t install;       /* enum image_install */
};

enum image_region_kind {
	REGION_ANON = 1, /* private: moved from the stash, or fresh */
	REGION_FILE,     /* of @description, private or shared; changed pages as patches */
	REGION_VDSO,     /* moved from where the kernel put the template's */
	REGION_SYSV,     /* System V shared memory: @description is a row of TABLE_SYSV */
};

enum image_region_flag {
	REGION_SHARED = 1,
	REGION_GROWS_DOWN = 2,
	REGION_NORESERVE = 4,
	REGION_DONTFORK = 8,
	REGION_WIPEONFORK = 16,
	REGION_HUGEPAGE = 32,
	REGION_NOHUGEPAGE = 64,
	REGION_DONTDUMP = 128,
	REGION_LOCKED = 256,
	/* 512 was of memory that is offered for merging, which nobody inside may do any more */
	REGION_READ_ONLY = 1024, /* System V: attached to be read only */
	REGION_SEQUENTIAL = 2048,
	REGION_RANDOM = 4096,
	REGION_INHERITED =
		8192, /* anonymous: @offset bytes are as an ancestor has them, but for the patches */
	REGION_DROPPABLE = 16384, /* anonymous, and begins empty */
};

struct image_region {
	uint64_t start, end;
	uint64_t stash;  /* anonymous: where its content is, 0 = in its patches, if it has any */
	uint64_t offset; /* in the file, or from the start of the template's vvar */
	uint32_t kind, flags, prot;
	uint32_t description;
	uint32_t first_patch, n_patches;
};

struct image_patch {
	uint64_t target, stash, length; /* anonymous: stash 0 = there is nothing */
};

/** struct image_guard - pages of some regions that nobody may touch (MADV_GUARD_INSTALL). */
struct image_guard {
	uint64_t start, end;
};

enum image_description_kind {
	DESCRIPTION_FILE = 1, /* by path */
	DESCRIPTION_SLOT,     /* brought by the fork's keeper */
	DESCRIPTION_PIPE_READ,
	DESCRIPTION_PIPE_WRITE,
	DESCRIPTION_EVENTFD,
	DESCRIPTION_EPOLL,
	DESCRIPTION_TIMERFD,
	DESCRIPTION_SIGNALFD,
	DESCRIPTION_CONNECTION, /* both ends here, or the other one gone */
	DESCRIPTION_MEMORY,     /* memfd, also stands for shared anonymous memory */
	DESCRIPTION_UNLINKED,
	DESCRIPTION_LISTEN,  /* a socket that accepts connections; made after all connections */
	DESCRIPTION_SOCKET,  /* any other socket */
	DESCRIPTION_INOTIFY, /* with the @b watches from @a on; made last */
	DESCRIPTION_PIDFD, /* of process @a, 0 = one that is gone; @b: flags it was opened with. Each process opens its own */
	DESCRIPTION_MASTER, /* of terminal @a */
	DESCRIPTION_TERMINAL, /* terminal @a, IMAGE_NONE = one whose master is gone; @b: by the name /dev/tty */
	DESCRIPTION_FIFO,    /* a named pipe */
	DESCRIPTION_PENDING, /* a connection that nobody has accepted yet; made with its listener */
	DESCRIPTION_PROC, /* by path: what /proc shows of a process. Each process opens its own; @a: when it has its threads, and its ids. @b 1: of one that has ended, which is opened once */
};

/** struct image_file - which file it was that had the name of a DESCRIPTION_FILE, where that is mapped; in its @data. The file of a fork must be the same. */
struct image_file {
	uint64_t size, inode;
	int64_t changed_s, born_s; /* its content, and itself; wall clock */
	uint32_t changed_ns, born_ns;
	uint32_t has_birth; /* the file system tells when it was made */
	uint32_t reserved;
};

enum image_socket_option {
	SOCKET_REUSEADDR = 1,
	SOCKET_REUSEPORT = 2,
	SOCKET_KEEPALIVE = 4,
	SOCKET_NODELAY = 8,
	SOCKET_V6ONLY = 16,
	SOCKET_PASSCRED = 32,
	SOCKET_ENDED = 64, /* a connection whose other end has said that it is done */
	SOCKET_RESET =
		128, /* the other end has gone without reading all, and nobody has been told yet */
	SOCKET_NAMELESS = 256, /* the file that it is bound to has been removed */
	SOCKET_REPLACED = 512, /* and another has that name now */
};

/** struct image_identity - who did something with a socket, as the kernel tells others: SO_PEERCRED, SCM_CREDENTIALS. */
struct image_identity {
	int32_t pid; /* 0 = not known */
	uint32_t uid, gid;
	uint32_t known;
};

/** struct image_option - an option of a socket that is not as it begins. */
struct image_option {
	int32_t level, name;
	struct image_span value; /* of IMAGE_ATTACH_FILTER: struct sock_filter each */
};

#define IMAGE_ATTACH_FILTER 26 /* of SOL_SOCKET: SO_ATTACH_FILTER */

/** struct image_owner - whom the kernel tells by a signal that a description is ready (F_SETOWN_EX, F_SETSIG). */
struct image_owner {
	uint32_t type;      /* 1 + F_OWNER_TID and its like, 0 = nobody */
	int32_t pid;        /* thread, process or group, as seen inside */
	uint32_t signal;    /* 0 = SIGIO */
	uint32_t uid, euid; /* who said so: the kernel asks whether that one may send signals */
	int32_t process,
		fd; /* by whose descriptor O_ASYNC is set: its number goes with the signal. process 0 = nobody's */
};

struct image_description {
	uint32_t kind;
	uint32_t flags; /* F_GETFL */
	uint64_t position;
	uint32_t
		peer; /* description of the other end; the lower index makes both. IMAGE_NONE = none */
	uint32_t mode;          /* S_IFMT and permissions */
	struct image_span path; /* without a NUL */
	struct image_span
		data; /* what waits to be read from it; content of memory and unlinked files; files by path: struct image_file, or nothing */
	uint64_t a, b,
		c; /* by kind: see the file of the object; files by path: a 1 = who maps it would not see another change it, so nobody may have; directories by path: b 1 = it was read to before the first of the names in place that is there, each but the last with its NUL, or, where there are none, to its end; memory and unlinked files: b and c are address and length of the content in the stash, and data is empty, or struct image_run each: of what is there; c 0 = it is in data itself */
	struct image_span remote; /* sockets: the other end's address */
	struct image_span
		folder; /* unix sockets: where a name is seen from that does not begin at the root, or begins at another */
	struct image_span
		place; /* unix sockets: where the file is that was bound to, when it is not called so any more; directories by path: see b */
	uint32_t backlog;
	uint32_t inode, inode_peer; /* sockets: to find out in the dumper who belongs together */
	uint32_t first_packet, n_packets; /* unix sockets: what waits to be received */
	uint32_t send_buffer,
		receive_buffer;           /* sockets: as the program asked for, 0 = it did not */
	struct image_identity other;      /* unix sockets: whom the other end belongs to */
	uint32_t first_lock, n_locks;     /* that belong to the description */
	uint32_t first_option, n_options; /* sockets */
	uint32_t uid, gid; /* of pipes, sockets, and files without a name: as seen inside */
	struct image_owner owner;
};

/** struct image_run - bytes that are there, of content that has holes. In rising order. */
struct image_run {
	uint64_t at, length;
};

#define IMAGE_OF_THREAD 0200U /* PIDFD_THREAD: the same bit as O_EXCL */

/** image_opened_by_each() - does each process that has it open it for itself, when all processes are there? */
static inline bool image_opened_by_each(const struct image_description *d)
{
	return (d->kind == DESCRIPTION_PROC && d->b == 0) ||
	       (d->kind == DESCRIPTION_PIDFD && d->a != 0);
}

/** image_opened_late() - does it so when its threads are there? */
static inline bool image_opened_late(const struct image_description *d)
{
	return d->a != 0 && (d->kind == DESCRIPTION_PROC || (d->kind == DESCRIPTION_PIDFD &&
								    (d->b & IMAGE_OF_THREAD) != 0));
}

/** struct image_termios - struct termios2 of the kernel. */
struct image_termios {
	uint32_t input, output, control, local;
	uint8_t discipline, chars[19];
	uint32_t input_speed, output_speed;
};

enum image_terminal_flag {
	TERMINAL_LOCKED = 1,
	TERMINAL_EXCLUSIVE = 2,
	TERMINAL_PACKETS = 4,
	TERMINAL_STOPPED = 8, /* by its stop character */
	TERMINAL_OPEN = 16,   /* somebody has its slave open */
	TERMINAL_CLOSED = 32, /* somebody has had */
	TERMINAL_GONE = 64,   /* its master is not there: nothing else is known of it */
	TERMINAL_HELD = 128,  /* stopped by tcflow(3), which no start character undoes */
};

/** struct image_terminal - a pair of pseudo terminals. */
struct image_terminal {
	uint32_t number; /* of /dev/pts */
	uint32_t
		slot; /* the keeper has the master: which of its descriptors. IMAGE_NONE = a program has */
	uint32_t flags;
	uint32_t mode, uid, gid;
	struct image_termios modes;
	uint16_t size[4];         /* struct winsize */
	struct image_span input;  /* typed and not yet read */
	struct image_span output; /* written, and not yet taken from the master */
};

struct image_fd {
	int32_t fd;
	uint32_t description;
	uint32_t close_on_exec;
};

/** struct image_watch - one entry of an epoll set, added by the process that holds both descriptors. */
struct image_watch {
	int32_t epoll, target;
	uint32_t events;
	uint32_t
		description; /* what is watched, where the process has something else, or nothing, at @target; else IMAGE_NONE */
	uint64_t data;
};

/** struct image_lock - a lock of a file. */
struct image_lock {
	uint32_t kind; /* enum proc_lock_kind */
	uint32_t exclusive;
	int32_t fd; /* of a process: the descriptor to take it by */
	uint32_t reserved;
	uint64_t start, length; /* length 0: to the end */
};

#define IMAGE_LOCK_POSIX 1U
#define IMAGE_LOCK_FLOCK 2U

/** struct image_node - an entry of a memory file system, parents first. */
struct image_node {
	struct image_span path;
	struct image_span target;       /* of a symbolic link */
	uint32_t mode, uid, gid;        /* ids as seen inside */
	uint32_t link;                  /* node of which this is another name, or IMAGE_NONE */
	uint32_t first_piece, n_pieces; /* where the file is not empty */
	uint64_t size;
	int64_t times[4]; /* of access and change: seconds and nanoseconds */
};

struct image_piece {
	uint64_t at;
	struct image_span data;
};

enum image_sysv_kind {
	SYSV_SHM,
	SYSV_SEM,
	SYSV_MSG,
	SYSV_SPARSE, /* memory that has holes; for the kernel SYSV_SHM */
};

#define SYSV_KINDS SYSV_SPARSE /* of the kernel */

enum image_sysv_flag {
	SYSV_REMOVED = 1, /* ends with its last attachment */
	SYSV_LOCKED = 2,
};

/** struct image_sysv - an object of the sandbox's ipc namespace. */
struct image_sysv {
	uint32_t kind;
	int32_t id, key;
	uint32_t mode, uid, gid, cuid, cgid; /* ids as seen inside */
	uint32_t flags, n_messages;
	uint64_t size;          /* bytes of memory, number of semaphores, bytes a queue may hold */
	struct image_span data; /* memory; uint16_t each; struct image_message and its bytes each */
};

/** image_is_segment() - is it memory? */
static inline bool image_is_segment(const struct image_sysv *s)
{
	return s->kind == SYSV_SHM || s->kind == SYSV_SPARSE;
}

/** struct image_message - the bytes follow: from @type on it is what msgsnd(2) takes. Of memory that has holes: what is there, and @type says where. */
struct image_message {
	uint64_t length;
	int64_t type;
};

/** struct image_notification - one watch of an inotify queue. */
struct image_notification {
	int32_t wd;
	uint32_t mask;
	struct image_span path;
};

/** struct image_packet - what waits in a unix socket: a datagram or record, or a part of a stream. */
struct image_packet {
	struct image_span data;
	struct image_span from; /* datagrams: the sender's address */
	struct image_identity sender;
	uint32_t first_right,
		n_rights; /* descriptors that came with it: numbers of descriptions in TABLE_RIGHTS */
};

struct image_siginfo {
	uint8_t bytes[128];
};

/* the highest number of one that a restored process reaches by making and deleting all that come before it */
#define IMAGE_TIMERS_COUNTED (1 << 20)

struct image_timer {
	int32_t id, clock, signal, notify;
	int32_t tid;
	uint32_t reserved;
	uint64_t value; /* sigev_value */
	uint64_t interval_s, interval_ns, value_s, value_ns;
};

#endif
