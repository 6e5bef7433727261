/* SPDX-License-Identifier: Apache-2.0 */
/* What is read of processes that stand still, by the thread or by who needs it, is what /proc says. */
#include "checkpoint/proc_reader.h"
#include "sys/file.h"
#include "t.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define MANY 12

struct others {
	pid_t pids[MANY];
	int procs[MANY];
	size_t n;
};

/* Each has more descriptors than the one before, and one of a file at an offset of its own. */
static void live(size_t i)
{
	int fd = open("/proc/self/exe", O_RDONLY);

	(void)lseek(fd, (off_t)i * 100, SEEK_SET);
	for (size_t j = 0; j < 2 * i; j++)
		(void)!dup(fd);
	for (;;)
		(void)pause();
}

static struct others others_new(size_t n)
{
	struct others o = { .n = n };
	char path[32];

	for (size_t i = 0; i < n; i++) {
		o.pids[i] = fork();
		if (o.pids[i] == 0)
			live(i);
		(void)usleep(20000);
		(void)kill(o.pids[i], SIGSTOP);
		(void)waitpid(o.pids[i], NULL, WUNTRACED);
		(void)snprintf(path, sizeof(path), "/proc/%d", o.pids[i]);
		o.procs[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	return o;
}

static void others_end(struct others *o)
{
	for (size_t i = 0; i < o->n; i++) {
		(void)kill(o->pids[i], SIGKILL);
		(void)waitpid(o->pids[i], NULL, 0);
		(void)close(o->procs[i]);
	}
}

static void begin(struct readings *all, const struct others *o)
{
	struct reading *list = calloc(o->n, sizeof(*list));

	for (size_t i = 0; i < o->n; i++)
		reading_init(&list[i], o->procs[i]);
	readings_begin(all, list, o->n);
}

static void check_file(const struct reading *r, const struct reading_file *f)
{
	cleanup_buf struct buf info = BUF_INIT(1 << 20);
	char path[32], target[4096];
	ssize_t n;

	(void)snprintf(path, sizeof(path), "fd/%d", f->fd);
	n = readlinkat(r->proc, path, target, sizeof(target));
	check_int(f->rc, 0);
	check_int(f->target_n, n);
	check(n > 0 && memcmp(r->texts.p + f->target, target, (size_t)n) == 0);
	(void)snprintf(path, sizeof(path), "fdinfo/%d", f->fd);
	check_int(file_read_at(r->proc, path, &info), 0);
	check_str(r->texts.p + f->info, buf_cstr(&info));
	check_int(f->info_n, info.n);
}

static void check_all(struct readings *all)
{
	for (size_t i = 0; i < all->n; i++) {
		struct reading *r = &all->list[i];
		cleanup_buf struct buf maps = BUF_INIT(1 << 20);

		check_int(readings_need(all, r, READING_MAPS), 0);
		check_int(file_read_at(r->proc, "maps", &maps), 0);
		check_str(buf_cstr(&r->maps), buf_cstr(&maps));
	}
	for (size_t i = 0; i < all->n; i++) {
		struct reading *r = &all->list[i];

		check_int(readings_need(all, r, READING_FILES), 0);
		check(r->n_files >= 1 + 2 * i);
		for (size_t j = 0; j < r->n_files; j++)
			check_file(r, &r->files[j]);
	}
}

TEST(what_is_read_is_what_proc_says)
{
	for (size_t n = 1; n <= MANY; n += MANY - 1) {
		struct others o = others_new(n);

		for (int times = 0; times < 5; times++) {
			struct readings all = { 0 };

			begin(&all, &o);
			check_int(all.started, n > 1);
			if (times == 4) /* the thread alone */
				(void)usleep(100000);
			check_all(&all);
			readings_fini(&all);
		}
		others_end(&o);
	}
}

TEST(what_nobody_needs_is_forgotten)
{
	struct others o = others_new(MANY);
	struct readings all = { 0 };

	begin(&all, &o);
	readings_fini(&all);
	readings_fini(&all);
	others_end(&o);
}

TEST(who_has_gone_is_an_error)
{
	struct others o = others_new(MANY);
	struct readings all = { 0 };

	(void)kill(o.pids[3], SIGKILL);
	(void)waitpid(o.pids[3], NULL, 0);
	begin(&all, &o);
	for (size_t i = 0; i < MANY; i++) {
		check_int(readings_need(&all, &all.list[i], READING_MAPS) < 0, i == 3);
		check_int(readings_need(&all, &all.list[i], READING_FILES) < 0, i == 3);
	}
	readings_fini(&all);
	others_end(&o);
}
