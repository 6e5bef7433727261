/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/dump_wire.h - messages between a keeper and its dumper (SOCK_SEQPACKET, one a packet).
 *
 *   keeper: PREPARE -> READY -> ORDER (with its terminals) -> STOPPED -> GO -> LOOKED -> RELEASE -> RELEASED -> (by itself) FILLED -> END -> ENDED (a report) -> closed
 * ENDED: the twins have ended, but are not reaped: they count as processes until the keeper, which has taken back by then what it lent for them, closes the socket.
 * Before RELEASED a packet of alive.h may come at any time; a dumper of which none comes is given up by SIGTERM, and answers with a report.
 * A report with an error in it in place of any answer: where it says that all were let go the keeper closes the socket, else RELEASE follows, and is answered by such a report.
 *   keeper: ORDER of kind DUMP_EXAMINE -> struct dump_examination. Each process is stopped for a moment, alone.
 *   keeper: ORDER of kind DUMP_SETTLE -> a report. As above; they are frozen, and nothing else is done.
 */
#ifndef CAY_CHECKPOINT_DUMP_WIRE_H
#define CAY_CHECKPOINT_DUMP_WIRE_H

#include "base/err.h"
#include "checkpoint/template_wire.h"

#define DUMP_KEEPER_FD   3
#define DUMP_TEMPLATE_FD 4
#define DUMP_FILTERS_FD  5 /* of seizer_stop(), where the order says suspended */
#define DUMP_LEAF_SIZE   32

#define DUMP_SETTLE_NS (2 * NS_PER_S) /* for DUMP_SETTLE, and what one process takes */

#define DUMP_TRACED "it is being traced (ptrace(2)), which cannot be carried over"
/* of a process whose memory belongs to the host: tracee_is_closed() */
#define DUMP_CLOSED \
	"it is not dumpable (prctl(2)), and was made by a fork or resume: only a server that runs as root can look at it"

enum dump_message {
	DUMP_PREPARE = 1,
	DUMP_ORDER,
	DUMP_GO,
	DUMP_RELEASE,
	DUMP_END,
	DUMP_EXAMINE,
	DUMP_SETTLE
};

/** struct dump_finding - one thing that could not be carried over. */
struct dump_finding {
	int32_t pid; /* inside; 0 = it is of no process */
	int32_t fd;  /* -1 = it is no descriptor */
	char name[16];
	char reason[400];
};

#define DUMP_FINDINGS_MAX 64U

/** struct dump_examination - what a capture would refuse just now. */
struct dump_examination {
	uint32_t n, more; /* @more did not fit */
	struct dump_finding findings[DUMP_FINDINGS_MAX];
};

/** struct dump_slot - a description that the keeper holds the other end of. */
struct dump_slot {
	uint64_t device, inode;
	uint32_t is_terminal; /* the masters come with the order, in the order of their slots */
	uint32_t number;      /* of the terminal, in its own file system of @device */
};

/* With LOOKED comes, where there is any, a memory file of so many bytes at most: of each file of an overlay that is open for writing "INODE DEVICE PATH", and a NUL. */
#define DUMP_NUMBERS_MAX (256U << 10)

/** struct dump_order - who is to be captured. PREPARE and ORDER; with the first only the pids, which run. */
struct dump_order {
	uint32_t kind;
	uint32_t n_pids, n_slots, n_leaves;
	uint32_t filters; /* seccomp filters of a process that made none itself */
	uint32_t
		readable; /* ORDER: those that programs have made can be read, as far as there was somebody with some */
	uint32_t suspended; /* all is stopped already, by seizer_stop() */
	uint32_t
		learned; /* what is known of those that programs have made comes behind the terminals, in the format of seizer.h: they count while calls are made */
	uint32_t may_open; /* EXAMINE: a capture can look at those whom only the host's root may */
	int32_t init_pid;
	uint32_t files; /* how high numbers of descriptors may go while a fork is made, + 1 */
	uint32_t
		for_good; /* nothing goes on afterwards: the memory is copied from the processes themselves */
	int32_t pids[TEMPLATE_PIDS_MAX];
	struct dump_slot slots[TEMPLATE_SLOTS_MAX];
	char leaves[TEMPLATE_LEAVES_MAX][DUMP_LEAF_SIZE];
	uint32_t leaf_ends
		[TEMPLATE_LEAVES_MAX]; /* behind the last of @pids that is in it: they stand together */
	uint8_t confined[TEMPLATE_LEAVES_MAX]; /* is a program's own Landlock domain there? */
};

/** dump_order_has() - is process @pid one of those that are to be stopped? */
static inline bool dump_order_has(const struct dump_order *order, int32_t pid)
{
	for (uint32_t i = 0; i < order->n_pids; i++) {
		if (order->pids[i] == pid)
			return true;
	}
	return false;
}

/* the last two are in the pause only when there are no twins */
enum dump_phase {
	DUMP_SEIZE,
	DUMP_LOOK,
	DUMP_TWIN,
	DUMP_RELEASE_PHASE,
	DUMP_READ,
	DUMP_COPY,
	DUMP_PHASES
};

struct dump_report {
	struct err err;
	uint64_t phase_ns[DUMP_PHASES];
	uint64_t copied_bytes;
	uint32_t n_processes, n_threads;
	uint32_t let_go;     /* nobody is held any more, but for these: */
	uint32_t n_stuck;    /* threads that could not be let go: they end with the dumper */
	uint32_t n_filtered; /* of those that were prepared: have filters of their own */
	int32_t closed; /* one of them that only the host's root may look at, inside; 0 = none is */
	char closed_name[16];
	uint32_t
		n_twins; /* copies that the template reads after the release; 0 = it has read all before */
};

#endif
