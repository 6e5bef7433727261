/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/keep.h - memory that a twin does not have, copied into the dumper while everything stands still; the template takes it from there later.
 *
 * Two kinds: pages of a process that fork() leaves out (MADV_DONTFORK, MADV_WIPEONFORK), and shared memory, once for all who map it.
 */
#ifndef CAY_CHECKPOINT_KEEP_H
#define CAY_CHECKPOINT_KEEP_H

#include "checkpoint/ahead.h"
#include <sys/types.h>

/** struct kept - bytes at @start of a process, now at @copy of ours. */
struct kept {
	uint64_t start, end;
	char *copy;
};

/** struct keep - kept pages of one process, in the order of their addresses. */
struct keep {
	struct kept *list;
	size_t n;
};

/** keep_pages() - copy @start..@end of process @host; ranges come in rising order. Return: 0 or -errno. */
int keep_pages(struct keep *k, pid_t host, uint64_t start, uint64_t end) attr_must_use;

/** keep_has() - was something of @start..@end kept? */
bool keep_has(const struct keep *k, uint64_t start, uint64_t end);

/** keep_fini() - forget all. */
void keep_fini(struct keep *k);

/** struct shared_memory - an object that processes map shared; its bytes from 0 to @size are at @copy, the first @have of them are of this instant. */
struct shared_memory {
	uint64_t device, inode, size, have;
	char *copy;
	uint64_t room; /* bytes mapped at @copy */
	/* its beginning, as one process mapped it while it ran: copied ahead from there, which is right if it is mapped so still */
	pid_t guess;
	uint64_t guess_address, guess_length;
	bool guess_right;
	const char *lent; /* the same bytes, mapped here; NULL */
	uint64_t lent_length;
	int lent_fd; /* open on them */
};

/** struct shared_memories - all of one capture. */
struct shared_memories {
	struct shared_memory *list;
	size_t n;
	struct ahead ahead;
};

/** keep_copy() - copy @length bytes at @from of process @host. Return: 0 or -errno. Context: any thread. */
int keep_copy(pid_t host, uint64_t from, char *to, uint64_t length) attr_must_use;

/** shared_memories_find() - NULL when it is not there. */
struct shared_memory *shared_memories_find(
	const struct shared_memories *s, uint64_t device, uint64_t inode);

/**
 * shared_memories_add() - copy what process @host has of an object at @address: its bytes from @offset on, as far as they are not there yet. A mapping that begins behind
 * what is there only makes the object larger: some other must bring what lies between.
 *
 * Return: 0 or -errno.
 */
int shared_memories_add(struct shared_memories *s, uint64_t device, uint64_t inode, pid_t host,
	uint64_t address, uint64_t offset, uint64_t length) attr_must_use;

/**
 * shared_memories_guess() - all of what process @host has of an object at @address, which was just added, may be copied from there as soon as all stands still. Of each object
 * the first counts; small ones are left out. A help: what is not guessed is copied by shared_memories_add().
 */
void shared_memories_guess(struct shared_memories *s, uint64_t device, uint64_t inode, pid_t host,
	uint64_t address, uint64_t offset, uint64_t length);

/**
 * shared_memory_lent() - @fd (borrowed) is open on the object @m, of which something was guessed: that is copied from there. What is open on something else is left alone. It is
 * mapped and no more: in the end it is the same if the object is no longer as large.
 */
void shared_memory_lent(struct shared_memory *m, int fd);

/**
 * keep_lent() - copy @length bytes of an object from @offset on, whole pages, while all who have it stand still. Its holes stay holes: no page is made on our account.
 * @lent: where it is mapped here, from its beginning on; others may have made it smaller. @fd: open on it.
 *
 * Return: 0, or -EFAULT when there is an end before. Context: any thread.
 */
int keep_lent(const char *lent, int fd, uint64_t offset, char *to, uint64_t length) attr_must_use;

/** shared_memories_stale() - what is there may have changed: the next additions copy it again, into the same pages. What was guessed waits for shared_memories_go(). */
void shared_memories_stale(struct shared_memories *s);

/** shared_memories_go() - all stands still: a thread copies what was guessed, until the first addition to one of these, which helps. */
void shared_memories_go(struct shared_memories *s);

/** shared_memories_confirm() - while all stands still, before additions: process @host maps the object there. */
void shared_memories_confirm(struct shared_memories *s, uint64_t device, uint64_t inode, pid_t host,
	uint64_t address, uint64_t offset, uint64_t length);

/** shared_memories_fini() - forget all. */
void shared_memories_fini(struct shared_memories *s);

#endif
