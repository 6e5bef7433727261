/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/template_wire.h - messages on the socket of a template (SOCK_SEQPACKET, fixed size, one a packet).
 *
 *   source's keeper:  ALLOW (pids follow; not answered) ; then the dumper on the same connection: while they run GATHER -> DONE and LEND -> DONE + [memory], any number of times; when they stand still SAME -> struct template_likeness; FILL + [image, plan] -> DONE, or POINT + the same: the
 *                     memory is left where it is, for SAVE alone. Until something has come of it, ALLOW begins anew. Before either, MEMORY + [memory of each] -> DONE, any number of times
 *   fork's keeper:    FORK + descriptors -> BEGUN + [pidfd of T'], TELLS + [listener] (not where nobody may listen), ROOT for each root, READY -> GO -> GOING, RUNNING ; later ENDED -> REAP for each root
 *   job that saves:   SAVE + [slots, for each coder: pipe, credit] -> DONE, with the sizes of image, plan and pages: a clone of the template puts these into slots, piece by piece (TEMPLATE_PIECE)
 *   job that loads:   LOAD + [image, plan, slots, for each coder: pipe, credit] -> DONE: the pages come out of slots instead of a process (struct template_pages)
 *                     ATTACH + [image, plan, lengths of chunks, struct template_first of places, requests, slots, for each coder: pipe, credit] -> DONE: as LOAD, but pages come, chunk by chunk, when their number has been written to requests. One
 *                     fork can be made of it, before all of its memory is there: RUNNING says 1 as status then, and later TOUCHED for each place that was needed first, and LOADED, or LOST: the rest will never be there
 * FAILED in place of any answer; with EPERM when another process than the one that connected sends anything but GATHER, LEND, SAME, MEMORY, FILL or POINT (an ALLOW of one is not heeded).
 */
#ifndef CAY_CHECKPOINT_TEMPLATE_WIRE_H
#define CAY_CHECKPOINT_TEMPLATE_WIRE_H

#include <stdint.h>

#define TEMPLATE_LINK_FD    3 /* the template ends when the other side closes */
#define TEMPLATE_LISTEN_FD  4
#define TEMPLATE_PIDS_MAX   4096U
#define TEMPLATE_LEAVES_MAX 96U
#define TEMPLATE_SLOTS_MAX  128U

enum template_message_kind {
	TEMPLATE_ALLOW = 1,
	TEMPLATE_FILL,
	TEMPLATE_FORK,
	TEMPLATE_GO,
	TEMPLATE_REAP,
	TEMPLATE_SAVE,
	TEMPLATE_LOAD,
	TEMPLATE_GATHER,
	TEMPLATE_POINT,
	TEMPLATE_MEMORY,
	TEMPLATE_ATTACH,
	TEMPLATE_LEND,
	TEMPLATE_SAME,
	TEMPLATE_DONE = 100,
	TEMPLATE_FAILED,
	TEMPLATE_ROOT,
	TEMPLATE_READY,
	TEMPLATE_RUNNING,
	TEMPLATE_ENDED,
	TEMPLATE_BEGUN,
	TEMPLATE_TOUCHED, /* pid, and the address as held.pages */
	TEMPLATE_LOADED,
	TEMPLATE_LOST,
	TEMPLATE_TELLS,
	TEMPLATE_GOING, /* all that is restored has been made: who calls something now is a program */
};

#define TEMPLATE_FIRST_MAX 64U

/** struct template_first - a place of a process' memory, by its pid inside and by the address that it had when the image was made. */
struct template_first {
	int32_t pid;
	uint32_t reserved;
	uint64_t address;
};

/** struct template_stream - bytes of the three parts that a template holds; on disk they follow each other in this order. */
struct template_stream {
	uint64_t image, plan, pages;
};

#define TEMPLATE_LOCKED \
	(-35) /* status of FAILED (EDEADLK): the file whose name is in @step is locked by somebody else */
#define TEMPLATE_REPLACED \
	(-116) /* ESTALE: the one that has the name in @step is not the file that was mapped */

struct template_message {
	uint32_t kind;
	int32_t pid;    /* host's (BEGUN, ROOT, ENDED, REAP); inside (FAILED) */
	int32_t inside; /* ROOT: the pid inside */
	int32_t status; /* ENDED: as of wait(2); FAILED, LOST: -errno */
	uint64_t cpu_us;
	struct template_stream held; /* DONE */
	char step[64];               /* FAILED, LOST: what was being done */
};

/** struct template_allow - the processes that may be copied, named by the keeper. */
struct template_allow {
	uint32_t kind;
	uint32_t n;
	int32_t pids[TEMPLATE_PIDS_MAX];
};

/** struct template_gather - have the kernel put @length bytes at @start of @pid into huge pages. A hint, for which it wants a privilege that dumpers have not. */
struct template_gather {
	uint32_t kind;
	int32_t pid;
	uint64_t start, length;
};

/** struct template_lend - open, to be read, the memory that @pid maps shared at @start..@end. Only if it is in memory and has no name: for that, too, dumpers have not the privilege. */
struct template_lend {
	uint32_t kind;
	int32_t pid;
	uint64_t start, end;
};

#define TEMPLATE_SAME_PAGES 8192U

/** struct template_same - which of the pages from @start on, at most TEMPLATE_SAME_PAGES, have @pids, which stand still, in one frame of memory? */
struct template_same {
	uint32_t kind;
	int32_t pids[2];
	uint32_t pages;
	uint64_t start;
};

/** struct template_likeness - the answer. */
struct template_likeness {
	uint32_t kind;                           /* TEMPLATE_SAME */
	int32_t status;                          /* 0 or -errno: nothing is known */
	uint64_t same[TEMPLATE_SAME_PAGES / 64]; /* a bit for each page */
};

#define TEMPLATE_HAND_MAX 64U

/** struct template_memory - descriptors of /proc/PID/mem come with it, of processes whose entries in /proc the template may not open itself. */
struct template_memory {
	uint32_t kind;
	uint32_t n;
	int32_t pids[TEMPLATE_HAND_MAX];
};

#define TEMPLATE_CODERS_MAX 8U

/*
 * SAVE: pieces of at most so many bytes, none of two parts. Piece P is for coder P % n, which has TEMPLATE_PIECE_SLOTS slots of this size, one coder's behind the other's from
 * the beginning of the memory; they are used in turn. A byte read from its credit makes one free, a uint64_t with the length written to its pipe gives it.
 */
#define TEMPLATE_PIECE       (256U << 10)
#define TEMPLATE_PIECE_SLOTS 4U

#define TEMPLATE_PAGE_SLOTS 4U /* of each coder */

#define TEMPLATE_AHEAD \
	(1U << 31) /* with the number of a chunk: it will be asked for, and the disk may begin to give it */
#define TEMPLATE_SLOT_SIZE (1U << 20)

#define TEMPLATE_DAMAGED \
	(~0ULL) /* what is on disk is not what was written; nothing comes behind it */

/**
 * struct template_pages - LOAD: in the pipes, one after the other in turn: the next bytes of the copied pages lie in a slot of the shared memory, without the pages of zeros. A
 * byte written to the credit of the pipe gives a slot back; slots are given back in the order in which they came.
 */
struct template_pages {
	uint64_t slot;    /* or TEMPLATE_DAMAGED */
	uint32_t raw;     /* bytes that are meant, at most TEMPLATE_SLOT_SIZE */
	uint32_t rest[3]; /* of the sender's: a struct pagechunk_head begins at raw */
	uint64_t present[TEMPLATE_SLOT_SIZE / 4096 / 64];
};

/**
 * struct template_fork - order for one fork. Descriptors, in this order: init's pidfd, its pid and cgroup namespaces, U1 if @has_u1, U2, its time namespace if @has_timens, the filters (memfd of sock_filter), the
 * program cay-keeper and the socket of the new starter, the keeper's v2 cgroup
 * if @has_cgroup, the loader's if @has_loader_cgroup, @n_tasks v1 `tasks` files, @n_leaves leaves, @n_slots slots.
 */
struct template_fork {
	uint32_t kind;
	uint32_t has_u1; /* rootless: the keeper's user namespace must be joined first */
	uint32_t has_timens, has_cgroup, has_loader_cgroup, n_tasks, n_leaves, n_slots;
	uint32_t filter_bytes;
	uint32_t
		told_bytes; /* behind those in the same file: the filter below, installed once for all; whoever listens gets TELLS */
	uint32_t told_error;  /* errno of its calls where nobody may listen */
	uint32_t told_listen; /* may somebody? */
	uint32_t single_id;
	uint32_t
		hold; /* 1: the processes wait for TEMPLATE_GO when they are complete (TEMPLATE_READY). Keepers of earlier builds say 0 to have them go by themselves */
	uint32_t wipe;          /* MADV_WIPEONFORK: that memory is empty, as behind fork(2) */
	uint32_t landlock_size; /* 0 = no Landlock domain */
	uint16_t nameless;      /* files may be made without a name (O_TMPFILE) */
	uint16_t
		counts; /* POSIX timers are counted up to their numbers also where the kernel would take these. It halves a word that was @nameless's: templates of earlier builds take the order */
	uint32_t
		learns; /* filters of programs count while they are installed: they cannot be suspended (PTRACE_O_SUSPEND_SECCOMP) */
	uint64_t landlock_files, landlock_scoped;
};

#endif
