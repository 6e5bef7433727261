/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/writings.h - jobs that put files into a sandbox that runs, beside whatever else is done with it.
 *
 * A job stands in the sandbox's mounts, which stay there for as long as it does, whatever becomes of the sandbox: it would write into a layer that is sealed, below the next start, or
 * beside a memory image. So whoever ends the sandbox, or puts its processes on disk, ends these jobs first and waits until they are no more. A sender may be slow, and is not waited for.
 */
#ifndef CAY_API_WRITINGS_H
#define CAY_API_WRITINGS_H

#include "api/server.h"

/** struct writing - one job's, into one sandbox; zero: none. */
struct writing {
	struct list node; /* in sb->writings */
	struct sandbox *sb;
	struct job *job;
	bool cut;  /* that goes no further */
	bool over; /* and the job is no more, as far as anybody can say */
};

/** writing_allowed() - may a job that is started without another wait write into @sb? Return: 0, or negative with @err set. */
int writing_allowed(const struct sandbox *sb, struct err *err) attr_must_use;

/** writing_begin() - @job, started just now, writes into @sb. Its job_end() comes behind writing_end(). */
void writing_begin(struct writing *w, struct sandbox *sb, struct job *job);

/** writing_end() - no more is sent to the job. Return: was it cut? Then what it says of itself means nothing. Context: may wait. */
bool writing_end(struct writing *w);

/** writing_was_cut() - the error of one that was. Return: negative. */
int writing_was_cut(const struct sandbox *sb, struct err *err);

/** writings_stop() - nobody writes into @sb from now on, until writings_allow() was called as often. Context: waits for the jobs that did. */
void writings_stop(struct sandbox *sb);

/** writings_allow() - see there. */
void writings_allow(struct sandbox *sb);

#endif
