/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/keeper_uncounted.c - memory that sockets, open directories and record locks hold and no control group counts (docs/design/0007, *Uncounted*): looked at when cayd asks, and whoever holds too much is ended, as
 * by the kernel when memory runs out: the exec that holds most.
 */
#include "base/ablate.h"
#include "base/clock.h"
#include "base/str.h"
#include "codec/proctext.h"
#include "sandbox/holders.h"
#include "sandbox/keeper.h"
#include "sandbox/recordlocks.h"
#include "sandbox/unlisted.h"
#include "sys/file.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define RMEM_MAX      "/proc/sys/net/core/rmem_max"
#define QUEUE_DEFAULT 212992 /* what the kernel gave until it gave more */
#define TCP_MEM       "/proc/sys/net/ipv4/tcp_mem"
#define TCP_RMEM      "/proc/sys/net/ipv4/tcp_rmem"
#define TEXT_MAX      256
#define MEMINFO_MAX   16384
#define SLABINFO_MAX  (1U << 20)
#define NAME_LEAST    96 /* bytes that the kernel takes for a name and what goes with it */
#define NAME_MOST     512
#define LEAST         (64ULL << 20) /* bytes that every sandbox may hold so */
#define UNLIMITED     2 /* where nothing of sockets is counted: this part of the machine's memory */

/* Bytes below which the machine's TCP knows no shortage. */
static uint64_t tcp_plenty(void)
{
	static uint64_t bytes;
	cleanup_buf struct buf text = BUF_INIT(TEXT_MAX);
	unsigned long pages;

	if (bytes != 0)
		return bytes;
	if (file_read_at(AT_FDCWD, TCP_MEM, &text) < 0 ||
		sscanf(buf_cstr(&text), "%lu", &pages) != 1)
		return UINT64_MAX;
	return bytes = pages * (uint64_t)getpagesize();
}

/* As much again as it may have of what is counted, and never so much that the connections of others are short of it. */
static uint64_t most(const struct keeper *k)
{
	const uint64_t limit = k->box.spec.limits.memory_bytes;
	uint64_t bytes = tcp_plenty();
	struct sysinfo machine;

	if (limit == 0 && !k->box.cgroup.controllers)
		return sysinfo(&machine) < 0 ? UINT64_MAX
					     : machine.totalram / UNLIMITED * machine.mem_unit;
	bytes = limit != 0 && limit < bytes ? limit : bytes;
	return bytes > LEAST ? bytes : LEAST;
}

/* Bytes that wait in a socket at most: as much as it may be asked to keep, twice, or what the buffer of a connection grows to by itself. */
static uint64_t queue_most(void)
{
	cleanup_buf struct buf text = BUF_INIT(TEXT_MAX);
	uint64_t queue, grown;

	if (file_read_u64_at(AT_FDCWD, RMEM_MAX, &queue) < 0)
		queue = QUEUE_DEFAULT;
	if (file_read_at(AT_FDCWD, TCP_RMEM, &text) < 0 ||
		sscanf(buf_cstr(&text), "%*u %*u %lu", &grown) != 1)
		return UINT32_MAX; /* look rather than not */
	return 2 * queue > grown ? 2 * queue : grown;
}

/* Could sockets that nobody lists hold @bytes? */
static bool may_hide(const struct keeper *k, uint64_t bytes)
{
	static uint64_t queue;

	queue = queue != 0 ? queue : queue_most();
	return keeper_unlisted_sockets(k) * queue > bytes;
}

/* Bytes in pieces that a name of a directory may have; charged to nobody, as those of `kmalloc-cg-` are not. */
static uint64_t pieces_of(const char *line)
{
	static const char kind[] = "kmalloc-";
	unsigned long n, size;

	if (strncmp(line, kind, sizeof(kind) - 1) != 0 || line[sizeof(kind) - 1] == 'c' ||
		sscanf(line, "%*s %lu %*u %lu", &n, &size) != 2 || size < NAME_LEAST ||
		size > NAME_MOST)
		return 0;
	return (uint64_t)n * size;
}

static uint64_t locks_of(const char *line)
{
	static const char kind[] = "file_lock_cache ";
	unsigned long n, size;

	if (strncmp(line, kind, sizeof(kind) - 1) != 0 ||
		sscanf(line, "%*s %lu %*u %lu", &n, &size) != 2)
		return 0;
	return (uint64_t)n * size;
}

/* Bytes in pieces that the whole machine has of a kind, or more. */
static uint64_t of_machine(uint64_t (*bytes_of)(const char *line))
{
	cleanup_buf struct buf text = BUF_INIT(SLABINFO_MAX), memory = BUF_INIT(MEMINFO_MAX);
	uint64_t all = 0;

	if (file_read_at(AT_FDCWD, "/proc/slabinfo", &text) == 0) {
		for (const char *p = buf_cstr(&text); p != NULL; p = strchr(p, '\n'))
			all += bytes_of(p += *p == '\n');
	}
	if (all == 0 && file_read_at(AT_FDCWD, "/proc/meminfo", &memory) == 0)
		all = proc_number(buf_cstr(&memory), "SUnreclaim", 10, 0) << 10;
	return all;
}

/* What directories hold is reckoned; more than the kernel has for all on this machine nobody holds. */
static uint64_t at_most_all(uint64_t bytes)
{
	const uint64_t all = bytes == 0 ? 0 : of_machine(pieces_of);

	return bytes < all ? bytes : all;
}

static int ask_sockets(struct keeper *k, struct holders *h)
{
	cleanup_fd int diag = -1;
	int rc;

	if (!keeper_has_sockets(k))
		return 0;
	diag = box_netlink(&k->box, NETLINK_SOCK_DIAG);
	rc = diag < 0 ? diag : holders_ask(diag, h);
	return rc == -ENOENT ? 0 : rc; /* a kernel that tells of none */
}

/*
 * Bytes that are held and not counted; @h: by whom. What directories hold is looked at where the sockets alone are not too much.
 * Return: 0, or -errno: it cannot be told.
 */
static int look(struct keeper *k, struct holders *h, uint64_t *uncounted)
{
	uint64_t counted = cgroup_sockets(&k->box.cgroup), after;
	struct holders directories = { 0 };
	bool hidden;
	int rc;

	/* the gateway's ends, which are in the same network, have the group of the listener that was made before any program was */
	h->ours = directories.ours = unlisted_group(&k->box.cgroup, "init");
	if (counted == UINT64_MAX || h->ours == 0)
		return -EOPNOTSUPP;
	rc = ask_sockets(k, h);
	hidden = h->bytes < counted + most(k) && may_hide(k, counted + most(k) - h->bytes);
	if (rc == 0 && h->bytes < counted + most(k) && (hidden || unlisted_many(&k->box.cgroup)))
		rc = unlisted_ask(&k->box.cgroup, hidden ? h : NULL, &directories);
	/* what came while it was looked is counted, too */
	after = cgroup_sockets(&k->box.cgroup);
	counted = after > counted ? after : counted;
	*uncounted = (h->bytes > counted ? h->bytes - counted : 0) + at_most_all(directories.bytes);
	holders_add_all(h, &directories);
	return rc;
}

/* It takes seconds, and where nobody can have too many is not begun. Return: -EAGAIN: it is not over. */
static int look_at_locks(struct keeper *k, struct holders *h)
{
	static bool begun;
	int rc = begun || of_machine(locks_of) > most(k)
			 ? recordlocks_ask(&k->box.cgroup, most(k), h)
			 : 0;

	begun = rc == -EAGAIN;
	return rc;
}

static void end_holder(struct keeper *k, struct exec *e, uint64_t uncounted)
{
	/* one that takes long to end is told of once */
	if (e->uncounted_bytes == 0)
		keeper_event(k, "limit.hit", e->id,
			json_pack("{s:s, s:{s:s, s:I, s:I}}", "limit", "kernel_memory", "detail",
				"reason",
				"sockets, open directories or record locks hold memory that the kernel charges to nobody",
				"uncounted_bytes", (json_int_t)uncounted, "most",
				(json_int_t)most(k)));
	e->uncounted_bytes = uncounted;
	exec_kill(e, &k->box);
}

/*
 * Whose sockets were made in no group of an exec's (in a fork, by who made it) may belong to each. @locks: those were of who was in the group, and heard of later: one that has ended by then is laid to
 * nobody.
 */
static void end_largest(struct keeper *k, const struct holders *h, uint64_t uncounted, bool locks)
{
	const struct holder *largest = holders_largest(h);
	const int last = locks && largest->group != 0;
	bool found = false;

	keeper_disturbed(k);
	for (int whose = 1; whose >= last && !found; whose--) {
		list_for_each (&k->execs, pos, next) {
			struct exec *e = list_entry(pos, struct exec, node);

			if (e->state == EXEC_STARTING ||
				(whose && unlisted_group(&k->box.cgroup, e->leaf) !=
						  largest->group) ||
				!cgroup_leaf_populated(&k->box.cgroup, e->leaf))
				continue;
			end_holder(k, e, uncounted);
			found = true;
		}
	}
}

/* What is being captured or made again is looked at the next time. */
static bool is_at_rest(const struct keeper *k)
{
	return k->capture.pid == 0 && !k->restoring && k->fork_parent < 0;
}

/* Return: all is in order, or nobody can tell that here. */
static bool is_settled(struct keeper *k, uint64_t *uncounted)
{
	struct holders h = { 0 };
	int rc = look(k, &h, uncounted), unseen = rc == -EOPNOTSUPP ? 0 : rc;
	bool locks = rc < 0 || *uncounted <= most(k);

	/* locks can be told also where nobody counts sockets, or has them looked at in time */
	if (locks) {
		h = (struct holders){ 0 };
		rc = look_at_locks(k, &h);
		*uncounted = rc == 0 && h.bytes > *uncounted ? h.bytes : *uncounted;
	}
	if (rc == 0 && *uncounted > most(k)) {
		end_largest(k, &h, *uncounted, locks);
		return false;
	}
	return rc == 0 && unseen == 0;
}

/* Processor time of the keeper, and of those of its children that have ended. */
static uint64_t spent_ns(void)
{
	struct rusage u = { 0 };

	(void)getrusage(RUSAGE_CHILDREN, &u);
	return clock_thread_ns() + (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * NS_PER_S +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * (NS_PER_MS / 1000);
}

void keeper_verb_uncounted(
	struct keeper *k, struct conn *c, json_int_t id, attr_unused const json_t *request)
{
	const bool runs = (k->state == KEEPER_RUNNING || k->state == KEEPER_PAUSED) &&
			  !k->suspended && !k->box.init_gone && !ablated("uncounted");
	const uint64_t before_ns = spent_ns();
	uint64_t uncounted = 0;
	const bool settled = !runs || (is_at_rest(k) && is_settled(k, &uncounted));

	keeper_reply(c, id,
		json_pack("{s:b, s:I, s:I}", "settled", (int)settled, "uncounted_bytes",
			(json_int_t)uncounted, "spent_ns", (json_int_t)(spent_ns() - before_ns)));
}
