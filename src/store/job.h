/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/job.h - one job: a process that does one thing to trees, speaks frames on one socket, and exits (docs/design/0002).
 */
#ifndef CAY_STORE_JOB_H
#define CAY_STORE_JOB_H

#include "store/store.h"
#include <jansson.h>

/** struct job - the request under way; blocking. */
struct job {
	int fd;
	json_t *request;
	const char *
		programs; /* directory of our programs (CAY_PROGRAMS), or NULL: that of this executable */
	struct store store;
	struct buf in;           /* bytes received and not used yet */
	void (*then)(void *ctx); /* job_stay() */
	void *then_ctx;
};

/** job_stay() - when the answer has been given do @then; from now on the end of the connection is not the job's end. Context: in a verb that succeeds. */
void job_stay(struct job *job, void (*then)(void *ctx), void *ctx);

/** store_job_main() - read the request from @fd, do it, reply. Return: exit status (0 when a reply was sent). */
int store_job_main(int fd);

/** enum job_lock - how a verb holds the state directory while it runs (store_lock()). */
enum job_lock { LOCK_NONE, LOCK_SHARED, LOCK_ALONE };

/** struct job_verb - something that a job can do: @run sets the reply on success, the error on failure. */
struct job_verb {
	const char *name;
	int (*run)(struct job *job, json_t **ok, struct err *err);
	bool store; /* works on the opened state directory */
	bool pool;  /* needs the pool to be there */
	enum job_lock lock;
};

/** job_add_verbs() - let store_job_main() also do verbs of layers above; once, before it is called. @verbs: borrowed for ever. */
void job_add_verbs(const struct job_verb *verbs, size_t n);

/** job_send() - send @object as an OBJECT frame; takes the reference. Return: 0 or -errno (the peer went away). */
int job_send(struct job *job, json_t *object) attr_must_use;

/** job_opened() - all that was named in the request is open: say so (OBJECT {"opened"}) where it wants to know ("opened"). 0, or an error: nobody listens. */
int job_opened(struct job *job, struct err *err) attr_must_use;

/** job_output() - send bytes as a STDOUT frame at @offset. */
int job_output(struct job *job, uint64_t offset, const void *bytes, size_t n) attr_must_use;

/**
 * job_input() - next STDIN frame.
 * @bytes: set to its payload, valid until the next call.
 *
 * Return: its length, 0 at the end of the input, -errno.
 */
ssize_t job_input(struct job *job, const char **bytes) attr_must_use;

/** job_text() - string member @name; %ERR_INVALID when it is missing or not a string. Borrowed from the request. NULL then. */
const char *job_text(const json_t *from, const char *name, struct err *err);

/** job_id() - the same for an identity. */
const char *job_id(const json_t *from, const char *name, struct err *err);

/** job_number() - non-negative integer member @name, @fallback when it is missing or null. */
int job_number(const json_t *from, const char *name, uint64_t fallback, uint64_t *ret,
	struct err *err) attr_must_use;

/** job_flag() - boolean member @name, @fallback when missing. */
bool job_flag(const json_t *from, const char *name, bool fallback);

/** job_ids() - array member @name holds nothing but identities (missing is the same as empty). */
int job_ids(const json_t *from, const char *name, struct err *err) attr_must_use;

/** job_groups() - member "groups" (missing: NULL) holds nothing but ids of groups; borrowed from @from. */
int job_groups(const json_t *from, const json_t **ret, struct err *err) attr_must_use;

/** job_set_groups() - have these supplementary groups, as job_groups() gave them, and no others. Return: 0 or -errno. */
int job_set_groups(const json_t *groups) attr_must_use;

/** job_temporary() - the file at @path (borrowed; NULL = none) goes with this process also when nobody waits for it any more. One at a time. */
void job_temporary(const char *path);

#endif
