/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/exec_saved.c - output that outlives the keeper: STATE/exec/<sandbox>/<exec>.* (io/outfile.h), written by keepers (sandbox/spill.h), read and removed here.
 */
#include "api/server.h"
#include "base/log.h"
#include "base/str.h"
#include "io/outfile.h"

#include <dirent.h>
#include <fcntl.h>

#define PIECE (256U << 10)

static int open_saved(struct outfile *f, const struct exec *e)
{
	cleanup_free char *path =
		str_dupf("%s/exec/%s", e->sandbox->srv->own_state, e->sandbox->id);
	cleanup_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	*f = (struct outfile)OUTFILE_INIT;
	return dir < 0 ? -errno : outfile_open(f, dir, e->id);
}

static int give_gap(uint64_t from, uint64_t to, exec_frame_fn *fn, void *ctx)
{
	unsigned char gap[16];

	frame_put_u64(gap, from);
	frame_put_u64(gap + 8, to);
	return from < to ? fn(ctx, FRAME_GAP, gap, sizeof(gap)) : 0;
}

/* Everything of the file from *@at on; *@at becomes the offset behind it. */
static int give_file(const struct outfile *f, uint64_t *at, exec_frame_fn *fn, void *ctx)
{
	cleanup_buf struct buf piece = BUF_INIT(PIECE + 8);
	struct outfile_part part;
	int rc;

	while ((rc = outfile_find(f, *at, &part)) > 0) {
		size_t n = part.n < PIECE ? (size_t)part.n : PIECE;
		char *to = buf_room(&piece, n + 8);

		rc = give_gap(*at, part.offset, fn, ctx);
		frame_put_u64((unsigned char *)to, part.offset);
		if (rc == 0)
			rc = outfile_read(f, &part, to + 8, n);
		if (rc == 0)
			rc = fn(ctx, part.err ? FRAME_STDERR : FRAME_STDOUT, to, n + 8);
		if (rc < 0)
			return rc;
		*at = part.offset + n;
	}
	return rc;
}

int exec_saved_replay(const struct exec *e, uint64_t from, exec_frame_fn *fn, void *ctx)
{
	const json_t *status = json_object_get(e->doc, "status");
	cleanup_free char *text = json_dumps(status, JSON_COMPACT);
	struct outfile f;
	uint64_t at = from;
	int rc = open_saved(&f, e);

	if (rc == 0)
		rc = give_file(&f, &at, fn, ctx);
	else if (rc == -ENOENT)
		rc = 0;
	outfile_close(&f);
	if (rc == 0)
		rc = give_gap(at,
			(uint64_t)json_integer_value(json_object_get(status, "output_bytes")), fn,
			ctx);
	if (rc == 0 && text != NULL)
		rc = fn(ctx, FRAME_STATUS, text, strlen(text));
	return rc;
}

/* --- removing --- */

void exec_saved_remove(struct server *srv, const char *sandbox)
{
	cleanup_free char *path = str_dupf("%s/exec/%s", srv->own_state, sandbox);
	DIR *dir = opendir(path);
	const struct dirent *entry;

	if (dir == NULL)
		return;
	while ((entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] != '.')
			(void)unlinkat(dirfd(dir), entry->d_name, 0);
	}
	(void)closedir(dir);
	if (rmdir(path) < 0)
		log_warn("exec", "remove '%s': %s", path, strerrordesc_np(errno));
}

void exec_saved_sweep(struct server *srv)
{
	cleanup_free char *path = str_dupf("%s/exec", srv->own_state);
	DIR *dir = opendir(path);
	const struct dirent *entry;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (id_valid(entry->d_name) && sandbox_by_id(srv, entry->d_name) == NULL)
			exec_saved_remove(srv, entry->d_name);
	}
	if (dir != NULL)
		(void)closedir(dir);
}
