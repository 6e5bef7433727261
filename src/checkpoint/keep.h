/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/keep.h - memory that a twin does not have, copied into the dumper while everything stands still; the template takes it from there later.
 *
 * Two kinds: pages of a process that fork() leaves out (MADV_DONTFORK, MADV_WIPEONFORK), and shared memory, once for all who map it.
 */
#ifndef CAY_CHECKPOINT_KEEP_H
#define CAY_CHECKPOINT_KEEP_H

#include "checkpoint/ahead.h"
#include "checkpoint/page_set.h"
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
	struct page_set
		there; /* of the first @have bytes: what is not there is not at @copy either, whatever that holds */
	bool advised; /* it is known how dense it is */
	/* where it was seen first while its owners ran */
	pid_t seen; /* 0 = it was not */
	uint64_t seen_address, seen_offset, seen_length;
	/* its beginning, as one process mapped it then: copied ahead from there, which is right if it is mapped so still */
	pid_t guess;
	uint64_t guess_address, guess_length;
	bool guess_right;
	uint64_t ahead; /* so many bytes of it were copied so, as far as they are in @there */
	struct page_set
		late; /* what shared_memories_ask() has found beside these, and has had copied */
	bool is_lent;
	int lent_fd;      /* open on it, then */
	const char *lent; /* what was guessed, mapped here; NULL */
	uint64_t lent_length;
};

/**
 * typedef keep_present - which pages of shared memory there are.
 * @device: where the object is; process @host maps @length bytes of it at @address, from @offset of it on.
 * @into: gets these, by their place in the object, and has room for them.
 *
 * Return: 0; -ENOMEM: it is not mapped there; or another error: nobody can tell, and all are taken to be there.
 */
typedef int keep_present(void *data, uint64_t device, pid_t host, uint64_t address, uint64_t offset,
	uint64_t length, struct page_set *into);

/** struct shared_memories - all of one capture. */
struct shared_memories {
	struct shared_memory *list;
	size_t n;
	struct ahead ahead, late;
	keep_present *present; /* of what is not lent; NULL = all are there */
	void *data;
};

/** keep_copy() - copy @length bytes at @from of process @host. Return: 0 or -errno. Context: any thread. */
int keep_copy(pid_t host, uint64_t from, char *to, uint64_t length) attr_must_use;

/** shared_memories_find() - NULL when it is not there. */
struct shared_memory *shared_memories_find(
	const struct shared_memories *s, uint64_t device, uint64_t inode);

/** shared_memories_see() - process @host, which runs, maps @length bytes of an object at @address, from @offset of it on. Return: 0 or -ENOMEM. */
int shared_memories_see(struct shared_memories *s, uint64_t device, uint64_t inode, pid_t host,
	uint64_t address, uint64_t offset, uint64_t length) attr_must_use;

/**
 * shared_memories_guess() - all of what process @host has of an object at @address, which was just seen, may be copied from there as soon as all stands still. Of each object
 * the first counts; small ones are left out. A help: what is not guessed is copied by shared_memories_add().
 */
void shared_memories_guess(struct shared_memories *s, uint64_t device, uint64_t inode, pid_t host,
	uint64_t address, uint64_t offset, uint64_t length);

/**
 * shared_memory_lent() - @fd (borrowed) is open on the object @m, to be read: it tells which pages there are, and has their bytes. What is open on something else is left alone.
 * What was guessed is mapped and no more: in the end it is the same if the object is no longer as large.
 */
void shared_memory_lent(struct shared_memory *m, int fd);

/**
 * keep_lent() - copy what is there of @length bytes of an object from @offset on, whole pages, while all who have it stand still. Its holes stay holes: no page is made on our
 * account.
 * @lent: where it is mapped here, from its beginning on; others may have made it smaller. @fd: open on it. @there: gets the pages that are, and no others.
 *
 * Return: 0, or -EFAULT when there is an end before. Context: any thread.
 */
int keep_lent(const char *lent, int fd, uint64_t offset, char *to, uint64_t length,
	struct page_set *there) attr_must_use;

/**
 * shared_memories_warm() - while its owners run: have pages for what is there of all that was seen, so that they need not be made while everything stands still. Of what is lent
 * it is looked at; of the rest it is in ->there. A help, in what it does and in what it cannot.
 */
void shared_memories_warm(struct shared_memories *s);

/** shared_memories_stale() - what is there may change: additions copy all of it, into the same pages. What was guessed waits for shared_memories_go(). */
void shared_memories_stale(struct shared_memories *s);

/** shared_memories_go() - all stands still: a thread copies what was guessed, until the first addition to one of these, which helps. */
void shared_memories_go(struct shared_memories *s);

/**
 * shared_memories_ask() - all stands still, and can be asked: what there is of what was guessed, and is not lent, and nobody knew of before, is copied by another thread. A help, as
 * what is guessed. Once.
 */
void shared_memories_ask(struct shared_memories *s);

/** shared_memories_confirm() - while all stands still, before additions: process @host maps the object there. */
void shared_memories_confirm(struct shared_memories *s, uint64_t device, uint64_t inode, pid_t host,
	uint64_t address, uint64_t offset, uint64_t length);

/**
 * shared_memories_add() - copy what process @host has of an object at @address: its bytes from @offset on, as far as they are not there yet. A mapping that begins behind
 * what is there only makes the object larger: some other must bring what lies between. Its holes stay holes, as far as somebody knows them.
 *
 * Return: 0 or -errno.
 */
int shared_memories_add(struct shared_memories *s, uint64_t device, uint64_t inode, pid_t host,
	uint64_t address, uint64_t offset, uint64_t length) attr_must_use;

/** shared_memories_read() - copy all @size bytes of an object that @fd (whose place does not change) is open on, to be read. Its holes stay holes. Return: 0 or -errno. */
int shared_memories_read(struct shared_memories *s, uint64_t device, uint64_t inode, int fd,
	uint64_t size) attr_must_use;

/** shared_memories_fini() - forget all. */
void shared_memories_fini(struct shared_memories *s);

#endif
