/* SPDX-License-Identifier: Apache-2.0 */
#include "store/job.h"
#include "base/id.h"
#include "base/str.h"
#include "codec/frame.h"
#include "store/verbs.h"
#include "sys/file.h"

#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define REQUEST_MAX (256U << 20) /* in pieces */

static const struct job_verb verbs[] = {
#define VERB(name, pool, lock) { #name, store_##name, true, pool, lock },
	STORE_VERBS(VERB)
#undef VERB
};

static const struct job_verb *added;
static size_t n_added;

void job_add_verbs(const struct job_verb *more, size_t n)
{
	BUG_ON(added != NULL);
	added = more;
	n_added = n;
}

static int job_frame(struct job *job, enum frame_type type, const void *bytes, size_t n)
{
	cleanup_buf struct buf out = BUF_INIT(FRAME_PAYLOAD_MAX + FRAME_HEADER_SIZE);

	frame_encode(&out, type, 0, bytes, n);
	return file_write_all(job->fd, buf_cstr(&out), out.n);
}

static int job_json(struct job *job, enum frame_type type, json_t *object)
{
	char *text = json_dumps(object, JSON_COMPACT);
	int rc;

	json_decref(object);
	if (text == NULL)
		return -ENOMEM;
	rc = strlen(text) > FRAME_PAYLOAD_MAX ? -EMSGSIZE
					      : job_frame(job, type, text, strlen(text));
	free(text);
	return rc;
}

int job_send(struct job *job, json_t *object)
{
	return job_json(job, FRAME_OBJECT, object);
}

int job_opened(struct job *job, struct err *err)
{
	int rc = job_flag(job->request, "opened", false)
			 ? job_send(job, json_pack("{s:b}", "opened", 1))
			 : 0;

	return rc < 0 ? err_raise_sys(err, rc, "say that all is open") : 0;
}

int job_output(struct job *job, uint64_t offset, const void *bytes, size_t n)
{
	cleanup_buf struct buf out = BUF_INIT(FRAME_PAYLOAD_MAX + FRAME_HEADER_SIZE);

	frame_encode_output(&out, FRAME_STDOUT, 0, offset, bytes, n);
	return file_write_all(job->fd, buf_cstr(&out), out.n);
}

static int receive(struct job *job)
{
	char *room = buf_room(&job->in, 65536);
	ssize_t n;

	if (room == NULL)
		return -EMSGSIZE;
	do {
		n = read(job->fd, room, 65536);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : -ECONNRESET;
	buf_grown(&job->in, (size_t)n);
	return 0;
}

/* The caller drops @used bytes when it is done with the payload. */
static int next_frame(struct job *job, struct frame *frame, size_t *used)
{
	for (;;) {
		ssize_t n = frame_decode(buf_cstr(&job->in), job->in.n, frame);
		int rc;

		if (n < 0)
			return (int)n;
		if (n > 0) {
			*used = (size_t)n;
			return 0;
		}
		rc = receive(job);
		if (rc < 0)
			return rc;
	}
}

ssize_t job_input(struct job *job, const char **bytes)
{
	static size_t used;
	struct frame frame;
	int rc;

	buf_consume(&job->in, used);
	used = 0;
	rc = next_frame(job, &frame, &used);
	if (rc < 0)
		return rc;
	if (frame.type != FRAME_STDIN)
		return -EBADMSG;
	*bytes = frame.payload;
	return (ssize_t)frame.size;
}

const char *job_text(const json_t *from, const char *name, struct err *err)
{
	const char *s = json_string_value(json_object_get(from, name));

	if (s == NULL)
		(void)err_raise(err, ERR_INVALID, "member '%s' is missing or not a string", name);
	return s;
}

const char *job_id(const json_t *from, const char *name, struct err *err)
{
	const char *s = job_text(from, name, err);

	if (s == NULL || id_valid(s))
		return s;
	(void)err_raise(err, ERR_INVALID, "member '%s' is not an id", name);
	return NULL;
}

int job_number(
	const json_t *from, const char *name, uint64_t fallback, uint64_t *ret, struct err *err)
{
	const json_t *v = json_object_get(from, name);

	*ret = fallback;
	if (v == NULL || json_is_null(v))
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return err_raise(
			err, ERR_INVALID, "member '%s' is not a non-negative integer", name);
	*ret = (uint64_t)json_integer_value(v);
	return 0;
}

bool job_flag(const json_t *from, const char *name, bool fallback)
{
	const json_t *v = json_object_get(from, name);

	return json_is_boolean(v) ? json_is_true(v) : fallback;
}

int job_groups(const json_t *from, const json_t **ret, struct err *err)
{
	const json_t *list = json_object_get(from, "groups"), *e;
	size_t i;

	if (list != NULL && !json_is_array(list))
		return err_raise(err, ERR_INVALID, "member 'groups' is not an array");
	json_array_foreach (list, i, e) {
		if (!json_is_integer(e) || json_integer_value(e) < 0 ||
			json_integer_value(e) >= UINT32_MAX)
			return err_raise(
				err, ERR_INVALID, "'groups' holds something that is no group id");
	}
	*ret = list;
	return 0;
}

int job_set_groups(const json_t *groups)
{
	size_t n = json_array_size(groups);
	cleanup_free gid_t *list = xalloc(n * sizeof(*list));

	for (size_t i = 0; i < n; i++)
		list[i] = (gid_t)json_integer_value(json_array_get(groups, i));
	return setgroups(n, list) < 0 ? -errno : 0;
}

int job_ids(const json_t *from, const char *name, struct err *err)
{
	const json_t *v = json_object_get(from, name), *e;
	size_t i;

	if (v == NULL)
		return 0;
	if (!json_is_array(v))
		return err_raise(err, ERR_INVALID, "member '%s' is not an array", name);
	json_array_foreach (v, i, e) {
		if (!json_is_string(e) || !id_valid(json_string_value(e)))
			return err_raise(
				err, ERR_INVALID, "'%s' holds something that is no id", name);
	}
	return 0;
}

static const struct job_verb *find_verb(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (str_eq(verbs[i].name, name))
			return &verbs[i];
	}
	for (size_t i = 0; i < n_added; i++) {
		if (str_eq(added[i].name, name))
			return &added[i];
	}
	return NULL;
}

static int open_for(struct job *job, const struct job_verb *verb, struct err *err)
{
	const char *state = job_text(job->request, "state", err);
	int rc;

	if (state == NULL)
		return -EINVAL;
	rc = store_open(&job->store, state, err);
	if (rc == 0 && verb->lock != LOCK_NONE)
		rc = store_lock(&job->store, verb->lock == LOCK_ALONE, STORE_WAIT_MS, err);
	if (rc == 0 && verb->pool)
		rc = store_open_pool(&job->store, err);
	return rc;
}

static int run(struct job *job, json_t **ok, struct err *err)
{
	const char *name = job_text(job->request, "verb", err);
	const struct job_verb *verb = name != NULL ? find_verb(name) : NULL;
	int rc;

	if (name == NULL)
		return -EINVAL;
	if (verb == NULL)
		return err_raise(err, ERR_UNSUPPORTED, "no job is called '%s'", name);
	rc = verb->store ? open_for(job, verb, err) : 0;
	return rc < 0 ? rc : verb->run(job, ok, err);
}

/* Errors of a pool that became read-only say little by themselves. */
static void explain(const struct store *store, struct err *err)
{
	if (!store_is_broken(store))
		return;
	err->code = ERR_DISK_FULL;
	err_context(err, "the pool can no longer be written, the disk below it was full or failed");
	(void)err_hint(err, 0,
		"make room on the disk of '%s', stop every sandbox, then run 'cay storage init'",
		store->path);
}

static json_t *error_json(const struct err *err)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:i}", "code", err_code_name(err->code), "message",
		err->msg, "hint", err->hint, "member", err->member, "errno", err->sys);
}

static int reply(struct job *job, int rc, json_t *ok, const struct err *err)
{
	json_t *id = json_object_get(job->request, "id");
	json_t *r = json_object();

	(void)json_object_set(r, "id", id != NULL ? id : json_null());
	if (rc < 0) {
		json_decref(ok);
		(void)json_object_set_new(r, "error", error_json(err));
	} else {
		(void)json_object_set_new(r, "ok", ok != NULL ? ok : json_object());
	}
	return job_json(job, FRAME_REPLY, r);
}

/* What names all that the catalogue knows may be larger than a frame: STDIN frames with its text follow. */
static int read_pieces(struct job *job, json_int_t n, json_error_t *why)
{
	cleanup_buf struct buf text = BUF_INIT(REQUEST_MAX);
	struct frame frame;
	size_t used;

	for (; n > 0; n--) {
		int rc = next_frame(job, &frame, &used);

		if (rc < 0)
			return rc;
		if (frame.type != FRAME_STDIN)
			return -EBADMSG;
		buf_add(&text, frame.payload, frame.size);
		buf_consume(&job->in, used);
	}
	if (buf_failed(&text))
		return -EMSGSIZE;
	json_decref(job->request);
	job->request = json_loadb(buf_cstr(&text), text.n, JSON_REJECT_DUPLICATES, why);
	return 0;
}

static int read_request(struct job *job, struct err *err)
{
	struct frame frame;
	size_t used;
	json_error_t why;
	json_int_t pieces;
	int rc = next_frame(job, &frame, &used);

	if (rc < 0)
		return err_raise_sys(err, rc, "read the request");
	if (frame.type != FRAME_REQUEST)
		return err_raise(err, ERR_INVALID, "the first frame is not a request");
	job->request = json_loadb(frame.payload, frame.size, JSON_REJECT_DUPLICATES, &why);
	buf_consume(&job->in, used);
	pieces = json_integer_value(json_object_get(job->request, "pieces"));
	if (pieces > 0)
		rc = read_pieces(job, pieces, &why);
	if (rc < 0)
		return err_raise_sys(err, rc, "read the pieces of the request");
	if (!json_is_object(job->request))
		return err_raise(
			err, ERR_INVALID, "the request is not a JSON object: %s", why.text);
	return 0;
}

/* Deep trees and long stacks hold a descriptor per directory and layer. */
static void raise_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* Nobody waits for the answer any more: end, whatever is half done is for recovery. While a sandbox is frozen signals are blocked. */
static int peer = -1;
static const char *volatile temporary;

static void on_peer(attr_unused int sig)
{
	struct pollfd p = { .fd = peer };

	if (poll(&p, 1, 0) != 1 || (p.revents & (POLLHUP | POLLERR)) == 0)
		return;
	if (temporary != NULL)
		(void)unlink(temporary);
	_exit(1);
}

void job_temporary(const char *path)
{
	temporary = path;
}

static void end_with_peer(int fd)
{
	const struct sigaction action = { .sa_handler = on_peer, .sa_flags = SA_RESTART };

	peer = fd;
	(void)sigaction(SIGIO, &action, NULL);
	if (fcntl(fd, F_SETOWN, getpid()) == 0)
		(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC);
	on_peer(SIGIO); /* it may have gone before */
}

void job_stay(struct job *job, void (*then)(void *ctx), void *ctx)
{
	(void)signal(SIGIO, SIG_IGN);
	job->then = then;
	job->then_ctx = ctx;
}

int store_job_main(int fd)
{
	struct job job = { .fd = fd,
		.programs = getenv("CAY_PROGRAMS"),
		.store = STORE_INIT,
		.in = BUF_INIT(2 * (FRAME_PAYLOAD_MAX + FRAME_HEADER_SIZE)) };
	struct err err = { 0 };
	json_t *ok = NULL;
	int rc;

	(void)signal(SIGPIPE, SIG_IGN);
	end_with_peer(fd);
	(void)umask(0);
	raise_files();
	rc = read_request(&job, &err);
	if (rc == 0)
		rc = run(&job, &ok, &err);
	BUG_ON((rc < 0) != (err.code != ERR_NONE));
	if (rc < 0)
		explain(&job.store, &err);
	rc = reply(&job, rc, ok, &err);
	json_decref(job.request);
	store_close(&job.store);
	buf_free(&job.in);
	if (job.then != NULL) {
		(void)close(fd);
		job.then(job.then_ctx);
	}
	return rc == 0 ? 0 : 1;
}
