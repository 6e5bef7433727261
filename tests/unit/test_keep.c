/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory of another process, copied while it stands still: by a thread from where it was guessed to be, or from where it is. */
#include "checkpoint/keep.h"
#include "t.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE   (10UL << 20)
#define DEVICE 1
#define INODE  2

struct owner {
	pid_t pid;
	char *a, *b; /* what it maps, as we do */
};

/* Two objects, in a process that does nothing. */
static struct owner owner_new(void)
{
	struct owner o;

	o.a = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	o.b = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(o.a, 'a', SIZE);
	memset(o.b, 'b', SIZE);
	o.pid = fork();
	if (o.pid == 0)
		for (;;)
			(void)pause();
	return o;
}

static void owner_end(struct owner *o)
{
	(void)kill(o->pid, SIGKILL);
	(void)waitpid(o->pid, NULL, 0);
	(void)munmap(o->a, SIZE);
	(void)munmap(o->b, SIZE);
}

static uint64_t at(const char *p)
{
	return (uint64_t)(uintptr_t)p;
}

/* While it runs: @length bytes of the object are said to be there, and all of them known. */
static void prepare_some(
	struct shared_memories *s, const struct owner *o, const char *where, uint64_t length)
{
	check_int(shared_memories_see(s, DEVICE, INODE, o->pid, at(where), 0, length), 0);
	shared_memories_guess(s, DEVICE, INODE, o->pid, at(where), 0, length);
	page_set_add(&shared_memories_find(s, DEVICE, INODE)->there, 0, length);
	shared_memories_warm(s);
	shared_memories_stale(s);
}

static void prepare(struct shared_memories *s, const struct owner *o, const char *where)
{
	prepare_some(s, o, where, SIZE);
}

static bool is_whole(const struct shared_memory *m, char byte)
{
	for (uint64_t i = 0; i < SIZE; i++) {
		if (m->copy[i] != byte)
			return false;
	}
	return m->have == SIZE && m->size == SIZE;
}

/* One run, of all. */
static bool has_only(const struct shared_memory *m, uint64_t start, uint64_t end)
{
	struct page_run run = { 0 };
	uint64_t from = 0;

	return page_set_next(&m->there, NULL, &from, m->have, &run) && run.start == start &&
	       run.end == end && !page_set_next(&m->there, NULL, &from, m->have, &run);
}

static bool is_all(const struct shared_memories *s, char byte)
{
	return is_whole(shared_memories_find(s, DEVICE, INODE), byte);
}

TEST(what_was_guessed_is_copied_anew_when_all_stands_still)
{
	struct shared_memories s = { 0 };
	struct owner o = owner_new();

	prepare(&s, &o, o.a);
	memset(o.a, 'c', SIZE);
	shared_memories_go(&s);
	shared_memories_confirm(&s, DEVICE, INODE, o.pid, at(o.a), 0, SIZE);
	/* nothing is copied after the thread has done it */
	ahead_finish(&s.ahead);
	memset(o.a, 'd', SIZE);
	check_int(shared_memories_add(&s, DEVICE, INODE, o.pid, at(o.a), 0, SIZE), 0);
	check(is_all(&s, 'c'));
	shared_memories_fini(&s);
	owner_end(&o);
}

TEST(a_wrong_guess_counts_for_nothing)
{
	struct shared_memories s = { 0 };
	struct owner o = owner_new();

	/* while it ran it was at b, where another is now */
	prepare(&s, &o, o.b);
	shared_memories_go(&s);
	shared_memories_confirm(&s, DEVICE, INODE, o.pid, at(o.a), 0, SIZE);
	check_int(shared_memories_add(&s, DEVICE, INODE, o.pid, at(o.a), 0, SIZE), 0);
	check(is_all(&s, 'a'));
	shared_memories_fini(&s);
	owner_end(&o);
}

TEST(a_guess_about_less_than_is_mapped_now_is_completed)
{
	struct shared_memories s = { 0 };
	struct owner o = owner_new();

	prepare_some(&s, &o, o.a, SIZE / 2);
	shared_memories_go(&s);
	shared_memories_confirm(&s, DEVICE, INODE, o.pid, at(o.a), 0, SIZE);
	check_int(shared_memories_add(&s, DEVICE, INODE, o.pid, at(o.a), 0, SIZE), 0);
	check(is_all(&s, 'a'));
	shared_memories_fini(&s);
	owner_end(&o);
}

TEST(what_cannot_be_copied_ahead_is_copied_later)
{
	struct shared_memories s = { 0 };
	struct owner gone = owner_new(), o = owner_new();

	prepare(&s, &gone, gone.a);
	owner_end(&gone);
	shared_memories_go(&s);
	/* said wrongly of who is gone: the copy itself has failed */
	shared_memories_confirm(&s, DEVICE, INODE, gone.pid, at(gone.a), 0, SIZE);
	check_int(shared_memories_add(&s, DEVICE, INODE, o.pid, at(o.b), 0, SIZE), 0);
	check(is_all(&s, 'b'));
	shared_memories_fini(&s);
	owner_end(&o);
}

TEST(a_capture_that_is_given_up_leaves_no_thread)
{
	struct shared_memories s = { 0 };
	struct owner o = owner_new();

	prepare(&s, &o, o.a);
	shared_memories_fini(&s);
	prepare(&s, &o, o.a);
	shared_memories_go(&s);
	shared_memories_fini(&s);
	check(s.n == 0 && !s.ahead.started);
	owner_end(&o);
}

/* --- what is mapped here as well --- */

struct lent {
	int fd; /* open on the object that we map at ->at */
	char *at;
	struct stat st;
	struct shared_memories s;
	struct shared_memory *m;
};

/* As prepare(), of an object that a descriptor leads to. @lend: of which descriptor. */
static void lent_init(struct lent *l, const int *lend)
{
	*l = (struct lent){ .fd = memfd_create("lent", MFD_CLOEXEC) };
	check(l->fd >= 0 && ftruncate(l->fd, SIZE) == 0 && fstat(l->fd, &l->st) == 0);
	l->at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, l->fd, 0);
	memset(l->at, 'a', SIZE);
	check_int(shared_memories_see(
			  &l->s, l->st.st_dev, l->st.st_ino, getpid(), at(l->at), 0, SIZE),
		0);
	shared_memories_guess(&l->s, l->st.st_dev, l->st.st_ino, getpid(), at(l->at), 0, SIZE);
	l->m = shared_memories_find(&l->s, l->st.st_dev, l->st.st_ino);
	shared_memory_lent(l->m, lend != NULL ? *lend : l->fd);
	shared_memories_warm(&l->s);
	shared_memories_stale(&l->s);
	memset(l->at, 'c', SIZE);
}

static void lent_fini(struct lent *l)
{
	shared_memories_fini(&l->s);
	(void)munmap(l->at, SIZE);
	(void)close(l->fd);
}

/* All stands still; it is mapped by process @host at @where. */
static void add_lent(struct lent *l, pid_t host, const char *where)
{
	shared_memories_go(&l->s);
	shared_memories_confirm(&l->s, l->st.st_dev, l->st.st_ino, getpid(), at(l->at), 0, SIZE);
	check_int(shared_memories_add(&l->s, l->st.st_dev, l->st.st_ino, host, at(where), 0, SIZE),
		0);
}

TEST(what_is_lent_is_copied_from_there)
{
	struct owner o = owner_new();
	struct lent l;

	lent_init(&l, NULL);
	check(l.m->lent != NULL);
	/* what is at the other place is not looked at */
	add_lent(&l, o.pid, o.b);
	check(is_whole(l.m, 'c'));
	lent_fini(&l);
	owner_end(&o);
}

TEST(what_is_open_on_something_else_is_not_lent)
{
	int other = memfd_create("other", MFD_CLOEXEC);
	struct lent l;

	check(other >= 0 && ftruncate(other, SIZE) == 0);
	lent_init(&l, &other);
	check(l.m->lent == NULL);
	add_lent(&l, getpid(), l.at);
	check(is_whole(l.m, 'c'));
	lent_fini(&l);
	(void)close(other);
}

TEST(what_was_lent_and_is_smaller_now_is_copied_out_of_the_process)
{
	struct owner o = owner_new();
	struct lent l;

	lent_init(&l, NULL);
	check_int(ftruncate(l.fd, SIZE / 2), 0);
	/* the thread meets the end, and nobody helps it */
	shared_memories_go(&l.s);
	while (!atomic_load(&l.s.ahead.ended))
		(void)sched_yield();
	add_lent(&l, o.pid, o.b);
	check(is_whole(l.m, 'b'));
	lent_fini(&l);
	owner_end(&o);
}

/* Else a sandbox could have pages that are charged to nobody of it. */
TEST(holes_of_what_is_lent_stay_holes)
{
	struct stat before, after;
	struct lent l;

	lent_init(&l, NULL);
	check_int(
		fallocate(l.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE / 2 + 4096), 0);
	check_int(fstat(l.fd, &before), 0);
	add_lent(&l, getpid(), l.at);
	check_int(fstat(l.fd, &after), 0);
	check_int(after.st_blocks, before.st_blocks);
	check(l.m->have == SIZE);
	check(has_only(l.m, SIZE / 2 + 4096, SIZE));
	check(l.m->copy[SIZE / 2 + 4096] == 'c' && l.m->copy[SIZE - 1] == 'c');
	lent_fini(&l);
}

/* --- what is there --- */

TEST(what_is_lent_and_was_not_guessed_is_read)
{
	struct lent l = { .fd = memfd_create("lent", MFD_CLOEXEC) };

	check(l.fd >= 0 && ftruncate(l.fd, SIZE) == 0 && fstat(l.fd, &l.st) == 0);
	check_int(shared_memories_see(&l.s, l.st.st_dev, l.st.st_ino, getpid(), 4096, 0, SIZE), 0);
	l.m = shared_memories_find(&l.s, l.st.st_dev, l.st.st_ino);
	shared_memory_lent(l.m, l.fd);
	shared_memories_warm(&l.s);
	shared_memories_stale(&l.s);
	check_int(pwrite(l.fd, "late", 4, 8192), 4);
	shared_memories_go(&l.s);
	check_int(shared_memories_add(&l.s, l.st.st_dev, l.st.st_ino, getpid(), 4096, 0, SIZE), 0);
	check(l.m->have == SIZE && has_only(l.m, 8192, 12288) && l.m->copy[8192] == 'l');
	check(fstat(l.fd, &l.st) == 0 && l.st.st_blocks == 8);
	shared_memories_fini(&l.s);
	(void)close(l.fd);
}

TEST(a_file_is_read_without_its_holes_and_its_place_stays)
{
	int fd = memfd_create("file", MFD_CLOEXEC);
	struct shared_memories s = { 0 };
	const struct shared_memory *m;
	struct stat st;

	check(fd >= 0 && ftruncate(fd, SIZE + 5) == 0);
	check_int(pwrite(fd, "middle", 6, SIZE / 2), 6);
	check_int(pwrite(fd, "end", 3, SIZE + 2), 3);
	check_int(lseek(fd, 17, SEEK_SET), 17);
	check_int(shared_memories_read(&s, DEVICE, INODE, fd, SIZE + 5), 0);
	m = shared_memories_find(&s, DEVICE, INODE);
	check(m->have == SIZE + 5 && m->size == SIZE + 5);
	check(memcmp(m->copy + SIZE / 2, "middle", 6) == 0 &&
		memcmp(m->copy + SIZE + 2, "end", 3) == 0);
	check_int(lseek(fd, 0, SEEK_CUR), 17);
	check(fstat(fd, &st) == 0 && st.st_blocks == 16);
	shared_memories_fini(&s);
	(void)close(fd);
}

/* The page tables of the owner knew the first megabyte; now there are the second half of it and what follows. */
static int known(attr_unused void *data, uint64_t device, attr_unused pid_t host,
	attr_unused uint64_t address, uint64_t offset, uint64_t length, struct page_set *into)
{
	check(device == DEVICE && offset == 0 && length == SIZE);
	page_set_add(into, 512 << 10, 2 << 20);
	return 0;
}

/* @asked: as soon as it can be. */
static void check_known(bool asked)
{
	struct shared_memories s = { .present = known };
	struct owner o = owner_new();
	const struct shared_memory *m;

	check_int(shared_memories_see(&s, DEVICE, INODE, o.pid, at(o.a), 0, SIZE), 0);
	shared_memories_guess(&s, DEVICE, INODE, o.pid, at(o.a), 0, SIZE);
	page_set_add(&shared_memories_find(&s, DEVICE, INODE)->there, 0, 1 << 20);
	shared_memories_warm(&s);
	shared_memories_stale(&s);
	memset(o.a, 'c', SIZE);
	shared_memories_go(&s);
	shared_memories_confirm(&s, DEVICE, INODE, o.pid, at(o.a), 0, SIZE);
	ahead_finish(&s.ahead);
	if (asked) {
		shared_memories_ask(&s);
		ahead_finish(&s.late);
	}
	memset(o.a, 'd', SIZE);
	check_int(shared_memories_add(&s, DEVICE, INODE, o.pid, at(o.a), 0, SIZE), 0);
	m = shared_memories_find(&s, DEVICE, INODE);
	check(m->have == SIZE && has_only(m, 512 << 10, 2 << 20));
	check(m->copy[512 << 10] == 'c' && m->copy[(1 << 20) - 1] == 'c');
	check(m->copy[1 << 20] == (asked ? 'c' : 'd'));
	check(m->copy[(2 << 20) - 1] == m->copy[1 << 20]);
	shared_memories_fini(&s);
	owner_end(&o);
}

TEST(what_nobody_knew_ahead_is_copied_behind_and_what_has_gone_is_none)
{
	check_known(false);
}

TEST(what_nobody_knew_ahead_is_copied_by_another_thread)
{
	check_known(true);
}

TEST(a_copy_ahead_of_what_is_lent_counts_only_if_it_is_mapped_where_it_was)
{
	struct lent l;

	lent_init(&l, NULL);
	shared_memories_go(&l.s);
	shared_memories_confirm(
		&l.s, l.st.st_dev, l.st.st_ino, getpid(), at(l.at) + 4096, 0, SIZE - 4096);
	ahead_finish(&l.s.ahead);
	memset(l.at, 'd', SIZE);
	check_int(shared_memories_add(&l.s, l.st.st_dev, l.st.st_ino, getpid(), at(l.at), 0, SIZE),
		0);
	check(is_whole(l.m, 'd'));
	lent_fini(&l);
}
