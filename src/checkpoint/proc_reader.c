/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/proc_reader.h"
#include "base/str.h"
#include "sys/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define TEXTS_MAX (256U << 20)
#define INFO_MAX  (1U << 20)

/* Of fewer the dumper has read all before a thread has begun. */
#define THREAD_MIN 4

enum state { NOT_BEGUN, BEGUN, READ };

void reading_init(struct reading *r, int proc)
{
	*r = (struct reading){
		.proc = proc, .maps = BUF_INIT(64U << 20), .texts = BUF_INIT(TEXTS_MAX)
	};
}

static void reading_fini(struct reading *r)
{
	buf_free(&r->maps);
	buf_free(&r->texts);
	free(r->files);
}

static void add_file(struct reading *r, int fd)
{
	struct reading_file *more =
		(r->n_files & (r->n_files - 1)) != 0
			? r->files
			: reallocarray(
				  r->files, r->n_files == 0 ? 1 : 2 * r->n_files, sizeof(*more));

	if (more == NULL)
		abort();
	r->files = more;
	more[r->n_files++] = (struct reading_file){ .fd = fd };
}

static int list_files(struct reading *r)
{
	int list = openat(r->proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = list < 0 ? NULL : fdopendir(list);
	const struct dirent *e;
	uint64_t fd;

	if (dir == NULL)
		return -errno;
	while ((e = readdir(dir)) != NULL) {
		if (str_to_u64(e->d_name, 0, INT32_MAX, &fd) == 0)
			add_file(r, (int)fd);
	}
	(void)closedir(dir);
	return 0;
}

static int read_maps(struct reading *r)
{
	int rc = file_read_at(r->proc, "maps", &r->maps);

	return rc == 0 ? list_files(r) : rc;
}

static int read_file(struct reading *r, struct reading_file *f, int targets, int infos)
{
	cleanup_buf struct buf info = BUF_INIT(INFO_MAX);
	char name[16], target[PATH_MAX + 64];
	ssize_t n;
	int rc;

	(void)snprintf(name, sizeof(name), "%d", f->fd);
	n = readlinkat(targets, name, target, sizeof(target) - 1);
	if (n < 0)
		return -errno;
	rc = file_read_at(infos, name, &info);
	if (rc < 0)
		return rc;
	f->target = r->texts.n;
	f->target_n = (size_t)n;
	buf_add(&r->texts, target, (size_t)n);
	buf_add(&r->texts, "", 1);
	f->info = r->texts.n;
	f->info_n = info.n;
	buf_add(&r->texts, buf_cstr(&info), info.n);
	buf_add(&r->texts, "", 1);
	return buf_failed(&r->texts) ? -EMSGSIZE : 0;
}

static int read_files(struct reading *r)
{
	cleanup_fd int targets = openat(r->proc, "fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_fd int infos = openat(r->proc, "fdinfo", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (targets < 0 || infos < 0)
		return -errno;
	for (size_t i = 0; i < r->n_files; i++)
		r->files[i].rc = read_file(r, &r->files[i], targets, infos);
	return 0;
}

void reading_warm(int proc)
{
	struct reading r;

	reading_init(&r, proc);
	if (list_files(&r) == 0)
		(void)!read_files(&r);
	reading_fini(&r);
}

/* Return: whether it was left for the caller, who has to do it now. */
static bool take(struct reading *r, enum reading_part part)
{
	int expected = NOT_BEGUN;

	return atomic_compare_exchange_strong(&r->state[part], &expected, BEGUN);
}

static void read_part(struct reading *r, enum reading_part part)
{
	r->rc[part] = part == READING_MAPS ? read_maps(r) : read_files(r);
	atomic_store(&r->state[part], READ);
}

/* The dumper comes from the other end. */
static void *read_all(void *readings)
{
	struct readings *all = readings;

	for (unsigned int part = 0; part < READING_PARTS; part++) {
		for (size_t i = all->n; i > 0 && !atomic_load(&all->over); i--) {
			struct reading *r = &all->list[i - 1];

			/* whose list the dumper is making is left to it */
			if (part == READING_FILES && atomic_load(&r->state[READING_MAPS]) != READ)
				continue;
			if (!take(r, part))
				continue;
			read_part(r, part);
			(void)sem_post(&all->read);
		}
	}
	return NULL;
}

void readings_begin(struct readings *all, struct reading *list, size_t n)
{
	sigset_t every, before;

	all->list = list;
	all->n = n;
	if (n < THREAD_MIN || sem_init(&all->read, 0, 0) < 0)
		return;
	(void)sigfillset(&every);
	(void)pthread_sigmask(SIG_SETMASK, &every, &before);
	all->started = pthread_create(&all->thread, NULL, read_all, all) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int readings_need(struct readings *all, struct reading *r, enum reading_part part)
{
	if (take(r, part))
		read_part(r, part);
	while (atomic_load(&r->state[part]) != READ)
		(void)sem_wait(&all->read);
	return r->rc[part];
}

void readings_fini(struct readings *all)
{
	atomic_store(&all->over, true);
	if (all->started)
		(void)pthread_join(all->thread, NULL);
	for (size_t i = 0; i < all->n; i++)
		reading_fini(&all->list[i]);
	free(all->list);
	*all = (struct readings){ 0 };
}
