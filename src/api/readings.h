/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/readings.h - jobs that read the files of a sandbox, running or stopped, beside whatever else is done with it.
 *
 * A job gets names and opens them later. A seal moves the live directory away and puts an empty one in its place before the document has the new layer: who opened in between would
 * find nothing of what the sandbox changed. So none opens while one seals, nor the other way round; what is open moves along. Layers are held (index.h). The live directory is not: a
 * reader may be slow, and whoever removes or rewinds the sandbox does not wait for it but ends it, for it cannot tell what is gone from what was never there.
 */
#ifndef CAY_API_READINGS_H
#define CAY_API_READINGS_H

#include "api/server.h"

/** struct reading - one job's, of one sandbox; zero: none. */
struct reading {
	struct list node; /* in sb->readings */
	struct sandbox *sb;
	struct job *job; /* once there is one */
	json_t *layers;  /* held */
	bool opening;    /* not all is open yet */
	bool live;       /* also what is not in a layer */
	bool cut;        /* that is being removed */
};

/**
 * reading_begin() - from now on, without another wait, the document of @sb says what a job may open by name; its files are where they belong.
 * Return: 0, or an error: then there is nothing to end. Context: waits.
 */
int reading_begin(struct reading *r, struct sandbox *sb, struct err *err) attr_must_use;

/** reading_started() - @job, which was asked to say `opened`, reads it. */
void reading_started(struct reading *r, struct job *job);

/** reading_opened() - the job has opened all. Idempotent; also of one that never began. */
void reading_opened(struct reading *r);

/** reading_end() - the job has ended with @rc and @err, or never began. Return: @rc, or why it read less than all. Also of one that never began. Context: may wait. */
int reading_end(struct reading *r, int rc, struct err *err);

/** readings_cut() - what @sb has beside its layers is about to be removed: who reads it fails. */
void readings_cut(struct sandbox *sb);

/** seal_begin() - the live directory of @sb is about to be moved away: wait until nobody is about to open it; who is for longer than %CALL_NS (a source that does not answer) fails. Locked. Context: waits. */
void seal_begin(struct sandbox *sb);

/** seal_end() - the document says where its files are, or they are where they were. */
void seal_end(struct sandbox *sb);

#endif
