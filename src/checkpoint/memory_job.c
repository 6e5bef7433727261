/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/memory_job.c - between a template, a coder and an object on disk.
 *
 *   save: template ==slots==> coders (pack) ==slots==> here: digests, file
 *   load: here ==orders==> coders (digests, unpack) ==slots==> here (image, plan), then the template (pages)
 *
 * This process moves bytes and works out digests; it decodes none. How many bytes each part has is the template's word: a coder has none in what is written.
 */
#include "checkpoint/memory_job.h"
#include "base/fault.h"
#include "base/str.h"
#include "checkpoint/capturer.h"
#include "checkpoint/machine.h"
#include "checkpoint/memory_coder.h"
#include "checkpoint/memory_object.h"
#include "checkpoint/memory_pager.h"
#include "sys/fdpass.h"
#include "sys/feature.h"
#include "sys/file.h"

#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

#define TOLD_BYTES (16U << 20)

/* --- the template --- */

static int connect_template(const struct job *job, struct err *err)
{
	const char *run = job_text(job->request, "run", err);
	const char *id = run == NULL ? NULL : job_id(job->request, "template", err);
	char path[PATH_MAX];

	if (id == NULL)
		return -EINVAL;
	template_path(run, id, path, sizeof(path));
	return template_connect(path, err);
}

static int send_order(int sock, uint32_t kind, const int *fds, size_t n)
{
	return fdpass_send(sock, &kind, sizeof(kind), fds, n);
}

/* @ret: what it holds, or NULL. */
static int wait_done(int sock, struct template_stream *ret)
{
	struct template_message m;
	size_t none;
	ssize_t n = fdpass_recv(sock, &m, sizeof(m), NULL, 0, &none);

	if (n != (ssize_t)sizeof(m))
		return n < 0 ? (int)n : -EPIPE;
	if (m.kind != TEMPLATE_DONE)
		return m.status < 0 ? m.status : -EPROTO;
	if (ret != NULL)
		*ret = m.held;
	return 0;
}

static void state_path(const struct job *job, char path[PATH_MAX])
{
	(void)snprintf(path, PATH_MAX, "%s/keepers/%s.state",
		json_string_value(json_object_get(job->request, "run")),
		json_string_value(json_object_get(job->request, "template")));
}

/* --- saving --- */

static int save_chunk(struct memory_writer *w, struct memory_coders *coders, uint64_t *left)
{
	const unsigned char *stored;
	struct coder_packed packed;
	int rc = memory_coders_packed(coders, &packed, &stored), raw;

	if (rc < 0)
		return rc;
	raw = memory_writer_add(w, &packed.chunk.head, stored, packed.content);
	if (raw < 0 || (uint64_t)raw > *left)
		return raw < 0 ? raw : -EBADMSG;
	*left -= (uint64_t)raw;
	return stored != NULL ? memory_coders_done(coders) : 0;
}

/* Said each time so much has been dealt with: whoever waits knows that it goes on. */
static int tell(struct job *job, uint64_t *told, uint64_t done)
{
	if (done - *told < TOLD_BYTES)
		return 0;
	*told = done;
	return job_send(job, json_pack("{s:I}", "done", (json_int_t)done));
}

static int save_stream(struct job *job, struct memory_writer *w, struct memory_coders *coders)
{
	const uint64_t parts[] = { w->parts.image, w->parts.plan, w->parts.pages };
	uint64_t done = 0, told = 0;
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		for (uint64_t left = parts[i]; rc == 0 && left > 0;) {
			uint64_t before = left;

			rc = save_chunk(w, coders, &left);
			done += before - left;
			if (rc == 0)
				rc = tell(job, &told, done);
		}
	}
	return rc;
}

static int order_save(struct memory_writer *w, int template, struct memory_coders *coders)
{
	struct template_stream held;
	int fds[MEMORY_CODER_FDS];
	int rc = send_order(template, TEMPLATE_SAVE, fds, memory_coders_givers(coders, fds));

	memory_coders_given(coders);
	if (rc == 0)
		rc = wait_done(template, &held);
	if (rc == 0)
		memory_writer_expect(w, &held);
	return rc;
}

static int save(struct job *job, struct memory_writer *w, struct err *err)
{
	cleanup_fd int template = connect_template(job, err);
	struct memory_coders coders = MEMORY_CODERS_INIT;
	struct chunk_set *known;
	char path[PATH_MAX];
	int rc;

	if (template <0)
		return template;
	known = memory_writer_known(w);
	rc = memory_coders_pack(&coders, known);
	if (rc == 0)
		rc = order_save(w, template, &coders);
	/* a clone of it gives; it serves one connection at a time, and forks need not wait for this one */
	fd_close(&template);
	if (rc == 0)
		rc = save_stream(job, w, &coders);
	(void)!memory_coders_end(&coders);
	chunk_set_free(known);
	state_path(job, path);
	if (rc == 0)
		rc = memory_writer_state(w, path);
	return rc < 0 ? err_raise_sys(err, rc, "write the memory of the sandbox to disk") : 0;
}

static int save_beside(struct job *job, const char *id, const char *sandbox, json_t *machine,
	const struct memory_reader *base, json_t **ok, struct err *err)
{
	struct memory_writer w;
	int rc = memory_writer_open(&w, &job->store, id, base, err);

	if (rc == 0)
		rc = save(job, &w, err);
	if (rc == 0)
		rc = memory_writer_commit(&w, sandbox, machine, err);
	if (rc == 0)
		*ok = json_pack("{s:I,s:I,s:I}", "stored", (json_int_t)w.stored, "shared",
			(json_int_t)w.shared, "bytes", (json_int_t)w.parts.pages);
	memory_writer_close(&w);
	return rc;
}

/* The earlier object, if it is named, still there and whole: it only saves work. */
static bool open_base(struct job *job, struct memory_reader *base)
{
	struct err err;
	const char *id = json_object_get(job->request, "base") != NULL
				 ? job_id(job->request, "base", &err)
				 : NULL;

	return id != NULL && memory_reader_open(base, &job->store, id, &err) == 0;
}

int memory_save_verb(struct job *job, json_t **ok, struct err *err)
{
	const char *id = job_id(job->request, "memory", err);
	const char *sandbox = id == NULL ? NULL : job_id(job->request, "sandbox", err);
	json_t *machine = sandbox == NULL ? NULL : machine_describe(err);
	struct memory_reader base = MEMORY_READER_INIT;
	bool beside;
	int rc;

	if (machine == NULL)
		return -EINVAL;
	beside = open_base(job, &base);
	rc = save_beside(job, id, sandbox, machine, beside ? &base : NULL, ok, err);
	if (rc < 0 && beside && err->sys == ESTALE) {
		*err = (struct err){ 0 };
		rc = save_beside(job, id, sandbox, machine, NULL, ok, err);
	}
	memory_reader_close(&base);
	json_decref(machine);
	return rc;
}

/* --- loading --- */

static int load_pages(struct memory_reader *r, struct memory_coders *coders, struct err *err)
{
	const struct pagechunk_head *head;
	int rc;

	do
		rc = memory_order_next(r, coders, &head, err);
	while (rc > 0);
	memory_coders_given(coders);
	return rc;
}

static int order_load(int template, const int tables[2], struct memory_coders *coders)
{
	int fds[2 + MEMORY_CODER_FDS] = { tables[0], tables[1] },
		    rc = send_order(template, TEMPLATE_LOAD, fds,
			    2 + memory_coders_takers(coders, fds + 2));

	memory_coders_handed_on(coders);
	return rc;
}

static int load(
	struct memory_reader *r, int template, struct memory_coders *coders, struct err *err)
{
	int tables[2], rc = memory_tables(r, coders, tables, err);

	if (rc == 0) {
		(void)fault("memory.load.tables");
		rc = order_load(template, tables, coders);
		if (rc < 0)
			(void)err_raise_sys(err, rc, "order the template to load");
	}
	fd_close(&tables[0]);
	fd_close(&tables[1]);
	if (rc < 0)
		return rc;
	rc = load_pages(r, coders, err);
	/* a broken pipe says less than what the template says */
	if (rc < 0 && err->sys != EPIPE)
		return rc;
	rc = wait_done(template, NULL);
	return rc < 0 ? err_raise_sys(err, rc, "load the memory into the template") : 0;
}

/* What a coder found before it ended says more than that it has. */
static int load_by_coders(struct memory_reader *r, int template, struct err *err)
{
	struct memory_coders coders;
	int rc = memory_coders_unpack(&coders, r->pages);

	if (rc < 0)
		(void)err_raise_sys(err, rc, "start the processes that unpack");
	if (rc == 0)
		rc = load(r, template, &coders, err);
	if (memory_coders_end(&coders) == -EBADMSG && rc < 0) {
		*err = (struct err){ 0 };
		rc = memory_reader_changed(r, err);
	}
	return rc;
}

/* @first: what is needed before anything runs. */
static int load_state(
	struct job *job, struct memory_reader *r, struct first *first, struct err *err)
{
	cleanup_buf struct buf state = BUF_INIT((size_t)1 << 30);
	char path[PATH_MAX];
	int rc = memory_reader_state(r, &state, err);

	if (rc < 0)
		return rc;
	first_of_state(&state, first);
	state_path(job, path);
	rc = file_create_at(AT_FDCWD, path, 0600, state.p, state.n);
	/* that is all that a keeper needs to begin */
	if (rc == 0)
		rc = job_send(job, json_pack("{s:b}", "state", 1));
	return rc < 0 ? err_raise_sys(err, rc, "hand over the state of the programs") : 0;
}

/* Is what is needed first enough? */
static bool may_wait(const struct job *job)
{
	return json_is_true(json_object_get(job->request, "lazy")) &&
	       feature_has(FEATURE_LAZY_RESUME);
}

int memory_load_verb(struct job *job, json_t **ok, struct err *err)
{
	const char *id = job_id(job->request, "memory", err);
	cleanup_fd int template = id == NULL ? -1 : connect_template(job, err);
	struct memory_reader r;
	struct first first;
	uint64_t bytes;
	int rc;

	if (template <0)
		return -EINVAL;
	rc = memory_reader_open(&r, &job->store, id, err);
	bytes = r.parts.pages;
	if (rc == 0)
		rc = err_hint(err, machine_check(json_object_get(r.manifest, "machine"), err),
			"its files are fine: cay resume --files-only, or of a snapshot cay fork or rewind with --files-only");
	if (rc == 0)
		rc = load_state(job, &r, &first, err);
	if (rc == 0)
		rc = may_wait(job) ? memory_pager_start(job, &r, &first, template, err)
				   : load_by_coders(&r, template, err);
	if (rc == -ENOMEM)
		rc = err_hint(err, rc,
			"see whether it is in more mappings than vm.max_map_count (sysctl) lets a process have on this machine");
	if (rc == 0)
		*ok = json_pack("{s:I}", "bytes", (json_int_t)bytes);
	memory_reader_close(&r);
	return rc;
}

/* --- looking --- */

static int check_one(struct job *job, const char *id, struct err *err)
{
	cleanup_buf struct buf state = BUF_INIT((size_t)1 << 30);
	struct memory_reader r;
	int rc = memory_reader_open(&r, &job->store, id, err);

	if (rc == 0)
		rc = memory_reader_state(&r, &state, err);
	while (rc == 0 && (rc = memory_reader_check(&r, err)) > 0)
		rc = 0;
	memory_reader_close(&r);
	return rc;
}

int memory_check_verb(struct job *job, json_t **ok, struct err *err)
{
	const json_t *ids = json_object_get(job->request, "memories"), *e;
	int rc = job_ids(job->request, "memories", err);
	size_t i;

	json_array_foreach (ids, i, e) {
		if (rc == 0)
			rc = check_one(job, json_string_value(e), err);
	}
	if (rc == 0)
		*ok = json_object();
	return rc;
}

int memory_exact_verb(struct job *job, json_t **ok, struct err *err)
{
	const char *id = job_id(job->request, "memory", err);
	cleanup_free char *path = id == NULL ? NULL : str_dupf(MEMORY_DIR "/%s/" MEMORY_EXACT, id);
	int rc;

	if (id == NULL)
		return -EINVAL;
	rc = fault("memory.exact.before");
	if (rc == 0 && faccessat(job->store.pool, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		rc = -errno;
	/* anything but "not there" says nothing of it */
	if (rc < 0 && rc != -ENOENT)
		return err_raise_sys(err, rc, "look for memory object '%s'", id);
	*ok = json_pack("{s:b}", "exact", (int)(rc == 0));
	return 0;
}
