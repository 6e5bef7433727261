/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay-template/pull.h - pages that are unpacked when they are asked for, chunk by chunk (TEMPLATE_ATTACH).
 *
 * Whoever serves them (checkpoint/memory_pager.c) is told numbers of chunks, in whatever order, and has coders unpack them into slots; chunk after chunk comes back in that order. Which bytes of which
 * copy of the plan a chunk stands for is reckoned from the lengths of all, which are authentic.
 */
#ifndef CAY_TEMPLATE_PULL_H
#define CAY_TEMPLATE_PULL_H

#include "prog/cay-template/fork.h"

#define PULL_ASKED_MAX (TEMPLATE_CODERS_MAX * TEMPLATE_PAGE_SLOTS)
#define PULL_NONE      0xffffffffU
#define PULL_DAMAGED   (-74L) /* EBADMSG: what is on disk is not what was written */
#define PULL_FDS_MAX   (2 + 2 * TEMPLATE_CODERS_MAX)

enum pull_state { PULL_OUT, PULL_ASKED, PULL_IN };

/** struct pull - the one of this template; its tables are inherited by clones, which each have their own state. */
struct pull {
	bool on;      /* something is to be pulled still */
	uint32_t n;   /* coders */
	int requests; /* numbers of chunks are written to it */
	int slots;
	int pipes[TEMPLATE_CODERS_MAX], credits[TEMPLATE_CODERS_MAX];
	uint32_t n_chunks, n_sorted;
	const uint64_t *
		chunk_at; /* of each: place of its first byte in the stream of pages; and its end */
	const uint64_t *copy_at; /* of each copy of the plan, the same */
	const uint32_t *sorted;  /* copies into the stash of a process, by where they go */
	const uint8_t *content;  /* of each copy: does the opener read it? */
	uint8_t *state;          /* of each chunk: enum pull_state */
	uint8_t *first;          /* of each chunk: is it taken before anything runs? */
	uint32_t queue[PULL_ASKED_MAX];
	uint64_t asked, taken; /* so many, ever */
};

/** struct pull_part - bytes of a chunk that lie side by side, all there or all zeros. */
struct pull_part {
	uint64_t to;     /* in the stash */
	uint64_t from;   /* in a slot; 0 = they are zeros */
	uint64_t length; /* whole pages, in the memory of processes */
	bool content;    /* of a description, not of a process: the template has taken it */
};

extern struct pull pull;

/** pull_fds_fit() - may so many descriptors be requests, slots, and pipe and credit of at least one coder? */
bool pull_fds_fit(uint32_t n_fds);

/**
 * pull_begin() - @fds are taken over: moved to where nobody else has any. @chunks: a sealed memory file of the lengths of all chunks (uint32_t). @pages: bytes that all of them stand for. The plan
 * has been checked. Return: 0 or -errno.
 */
long pull_begin(int chunks, const int *fds, uint32_t n_fds, uint64_t pages);

/** pull_first() - @places: a memory file of struct template_first, whose chunks pull_contents() takes too. Return: 0 or -errno. */
long pull_first(int places);
/** pull_next_page() - the first page from @at on, and before @end, of a process' stash that any chunk has; @end: there is none. */
uint64_t pull_next_page(uint64_t at, uint64_t end);
/** pull_place() - which address of its process' memory is at @at of a stash; 0 = of none. */
uint64_t pull_place(uint64_t at);

/** pull_map() - the slots, at WINDOW_COPY of this process. Return: 0 or -errno. */
long pull_map(void);
/** pull_unmap() - the other way. */
void pull_unmap(void);

/** pull_room() - so many bytes of zeros, for ever. Return: NULL when there is no memory. */
void *pull_room(uint64_t bytes);

/** pull_chunk_of() - the chunk that has the page at @at of a process' stash. Return: %PULL_NONE: none has, it is zeros. */
uint32_t pull_chunk_of(uint64_t at);

/** pull_may_ask() - may one more be asked for before one is taken? */
bool pull_may_ask(void);
/** pull_ask() - have @chunk unpacked, which is %PULL_OUT. Return: 0 or -errno. */
long pull_ask(uint32_t chunk);
/** pull_pipe() - where the next one comes from; -1 = none was asked for. */
int pull_pipe(void);
/** pull_take() - wait for the next chunk and give each of its parts to @each. Return: its number, %PULL_DAMAGED, other -errno. */
long pull_take(void (*each)(const struct pull_part *part));

/** pull_parts() - give each part of @chunk to @each, as if all of it were zeros. */
void pull_parts(uint32_t chunk, void (*each)(const struct pull_part *part));

/** pull_contents() - wait for what is no memory of a process, and put it into the stash; @all: for everything. In the template. Return: 0 or -errno. */
long pull_contents(bool all);

/** pull_forget() - the tables are not needed in this process. */
void pull_forget(void);

/** pull_end() - nothing is pulled any more: close all. */
void pull_end(void);

#endif
