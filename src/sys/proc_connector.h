/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sys/proc_connector.h - the kernel's own report of every fork, exec and exit (NETLINK_CONNECTOR, CN_IDX_PROC).
 *
 * For root in the initial namespaces; since Linux 6.6 for ordinary users of them too. Events come in order per processor, and the kernel counts
 * them per processor, so what was lost is known exactly. Source: drivers/connector/cn_proc.c, uapi/linux/cn_proc.h.
 *
 * Every process of the machine makes several events in its life, and waking for each would cost more than the events are worth. So a second socket, with a filter,
 * hears of execs alone, and only that one is watched: what a program was started with has to be read before it ends. The rest can wait until somebody asks.
 */
#ifndef CAY_SYS_PROC_CONNECTOR_H
#define CAY_SYS_PROC_CONNECTOR_H

#include "base/attr.h"
#include <sys/types.h>

#define PROC_CONNECTOR_CPUS 1024

enum proc_event_kind { PROC_EVENT_KIND_FORK, PROC_EVENT_KIND_EXEC, PROC_EVENT_KIND_EXIT };

/** struct proc_event_note - one event of a whole process; threads are left out. */
struct proc_event_note {
	enum proc_event_kind kind;
	pid_t pid;
	pid_t parent; /* FORK: real parent */
	int status;   /* EXIT: wait status */
	uint64_t monotonic_ns;
};

struct proc_connector {
	int fd;   /* non-blocking: all events */
	int wake; /* readable when a program was executed; may be @fd itself */
	uint32_t next_seq[PROC_CONNECTOR_CPUS];
	bool seen[PROC_CONNECTOR_CPUS];
	uint64_t
		lost; /* events of all processes of the machine that were lost; the reader resets it */
};

/** proc_connector_serves_us() - are we in the kernel's first pid namespace? It tells nobody else. */
bool proc_connector_serves_us(void);

/** proc_connector_open() - subscribe. Return: 0, or -errno: -EPERM not allowed, -ENXIO not in this pid namespace, -EOPNOTSUPP the kernel has none. */
int proc_connector_open(struct proc_connector *pc) attr_must_use;

/**
 * proc_connector_read() - read what waits, at most @max events; for one thread alone.
 * @notes: room for @max.
 * Return: how many; 0 when nothing waits; -errno.
 */
int proc_connector_read(
	struct proc_connector *pc, struct proc_event_note *notes, size_t max) attr_must_use;

/** proc_connector_close() - unsubscribe. */
void proc_connector_close(struct proc_connector *pc);

#endif
