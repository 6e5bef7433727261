/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay-template/lazy.h - processes that run before all of their memory is there (docs/design/0009, "What is needed first").
 *
 * Each restored process makes a userfaultfd for its part of the stash while it still may, and gives it away: to the loader, a child of T' that shares its descriptors, so that neither's death
 * gives up what is missing. The loader serves faults and follows what the process does with its memory; when the last chunk is in, it closes all.
 */
#ifndef CAY_TEMPLATE_LAZY_H
#define CAY_TEMPLATE_LAZY_H

#include "prog/cay-template/pull.h"

/** lazy_serves() - may process @p run before all of its memory is there? Else all of it is in the stash before the process is made. */
static inline bool lazy_serves(const struct plan_process *p)
{
	return p->image != IMAGE_NONE && (p->flags & PLAN_ALONE) != 0 &&
	       p->stash_end > p->stash_start;
}

/** lazy_possible() - may this process have a descriptor that serves the faults of a whole process, its forks included, and is what the plan has few enough? */
bool lazy_possible(void);

/** lazy_prepare() - this process and its clones get no huge pages: where one has been touched, what is missing around it would be there, as zeros. In the template, before anything is put into the stash. */
void lazy_prepare(void);
/** lazy_leave() - huge pages as before. In a clone that will be another program, which would have none for ever. */
void lazy_leave(void);

/** lazy_start() - in T', before it has descriptors of the sandbox: the loader, if there is anything to load. */
void lazy_start(void);
/** lazy_first_fd() - from here on descriptors are the loader's; ~0U = there is none. In T'. */
uint32_t lazy_first_fd(void);
/** lazy_error() - what an end of the loader means. @info: words of siginfo_t, as of waitid(2). Return: 0 = all is there; %PULL_DAMAGED; other -errno. */
long lazy_error(const int *info);
/** lazy_step() - where it ended, for whoever reads the error. @info: as above, of an end that is none of these two. */
const char *lazy_step(const int *info);
/** lazy_check() - fork_fail() when the loader has ended. In T', until lazy_go(). */
void lazy_check(void);
/** lazy_go() - the loader has all descriptors; from now on it does not end with T'. In T'. */
void lazy_go(void);
/** lazy_loader() - pid of the loader; 0 = there is none. In T'. */
long lazy_loader(void);

/** lazy_begin() - from now on what is missing of the caller's stash is loaded when it is touched. In a process, while it is privileged and after it has cloned its children. */
void lazy_begin(const struct plan_process *planned);
/** lazy_need() - have loaded what the kernel reads of the memory of @p where nobody can wait: at ends of threads, and for those who look at it from outside. In it. */
void lazy_need(const struct image_process *p);
/** lazy_fill() - have loaded all that a mapping at @start to @end has, which came from @stash. Holes cost nothing. */
void lazy_fill(uint64_t start, uint64_t end, uint64_t stash);
/** lazy_close() - this process has nothing to tell the loader, or has told it: before it becomes the payload's. */
void lazy_close(void);

/** loader_main() - the loader. @socket: processes give their descriptors to it, in datagrams with their place in the plan. */
BARE_NORETURN void loader_main(int socket);

#define LAZY_SPACES \
	16384U /* address spaces: those of the image, and of what is forked while it is loaded */
#define LAZY_GO 0xffffffffU /* instead of a place: see lazy_go() */

/** enum lazy_end - exit status of the loader. */
enum lazy_end {
	LAZY_ALL,         /* is there */
	LAZY_NO_ROOM = 1, /* for what it notes */
	LAZY_DAMAGED,     /* it was given PULL_DAMAGED */
	LAZY_STUCK,       /* something that had to come to an end did not */
	LAZY_CROWDED,     /* more address spaces than it follows */
	LAZY_NOT_ASKED,   /* whoever reads took no order */
	LAZY_NOT_TAKEN,   /* what was read did not come */
	LAZY_NOT_MAPPED,
	LAZY_NOT_HEARD, /* what a process does with its memory */
	LAZY_NOT_PLACED,
	LAZY_NOT_TOLD, /* something else came, or nobody was there any more */
	LAZY_NOT_KEPT, /* a descriptor */
	LAZY_NOT_TRACED,
	LAZY_ENDS
};

/* What T' sees of the loader: fork_shared()->loader. */
enum { LAZY_WAITS, LAZY_HAS_ALL, LAZY_GOES };

#endif
