/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/image_check.h"
#include "checkpoint/image_write.h"
#include "t.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PID    7
#define AT     0x10000000ULL
#define SECOND (AT + 0x10000)
#define THIRD  (AT + 0x20000)

/* rows of descriptions */
enum {
	A_FILE,
	A_DIRECTORY,
	A_READER,
	A_WRITER,
	A_LISTENER,
	A_PENDING,
	A_REMOVED,
	A_REMOVED_AGAIN,
	A_QUEUE,
	A_MASTER,
	A_TERMINAL,
	A_SLOT,
	A_TIMER,
	A_SOCKET,
	A_MEMORY,
	A_MEMORY_AGAIN,
	A_SPARSE,
	A_WRITER_AGAIN,
	DESCRIPTIONS
};

/** struct made - a plan and an image of one process that has one of everything. */
struct made {
	struct plan *plan;
	struct image_header *image;
	size_t plan_size, image_size;
};

static void *take(int fd, size_t *ret_size)
{
	struct stat st = { 0 };
	void *bytes, *map;

	check(fd >= 0 && fstat(fd, &st) == 0);
	*ret_size = (size_t)st.st_size;
	map = mmap(NULL, *ret_size, PROT_READ, MAP_PRIVATE, fd, 0);
	bytes = xalloc(*ret_size);
	memcpy(bytes, map, *ret_size);
	(void)munmap(map, *ret_size);
	(void)close(fd);
	return bytes;
}

static struct image_span text(struct image_writer *w, const char *t)
{
	return image_add_bytes(w, t, strlen(t));
}

static void add_description(
	struct image_writer *w, uint32_t at, struct image_description d, const char *path)
{
	if (path != NULL)
		d.path = text(w, path);
	if (d.peer == 0)
		d.peer = IMAGE_NONE;
	check_int(IMAGE_ADD(w, TABLE_DESCRIPTIONS, &d), at);
}

static void add_descriptions(struct image_writer *w)
{
	const uint32_t clients[] = { A_PENDING };
	const int64_t timer[4] = { 0 };
	const struct image_run there[] = { { 0, 4096 }, { 8192, 100 } };
	const struct image_file file = { .size = 5000 };
	struct image_span waiting = image_add_bytes(w, clients, sizeof(clients)),
			  set = image_add_bytes(w, timer, sizeof(timer)),
			  runs = image_add_bytes(w, there, sizeof(there)),
			  which = image_add_bytes(w, &file, sizeof(file));
	uint64_t content = image_stash_content(w, 100);

#define ADD(at, path, ...) \
	add_description(w, at, (struct image_description){ .kind = __VA_ARGS__ }, path)
	ADD(A_FILE, "/bin/sh", DESCRIPTION_FILE, .data = which, .n_locks = 1);
	ADD(A_DIRECTORY, "/tmp", DESCRIPTION_FILE);
	ADD(A_READER, NULL, DESCRIPTION_PIPE_READ, .peer = A_WRITER);
	ADD(A_WRITER, NULL, DESCRIPTION_PIPE_WRITE, .peer = A_READER);
	ADD(A_LISTENER, "\1ax", DESCRIPTION_LISTEN, .c = 1, .data = waiting);
	ADD(A_PENDING, NULL, DESCRIPTION_PENDING, .c = 1, .peer = A_LISTENER);
	ADD(A_REMOVED, "/tmp/gone", DESCRIPTION_UNLINKED, .b = content, .c = 100);
	ADD(A_REMOVED_AGAIN, "/tmp/gone", DESCRIPTION_UNLINKED, .a = 1 + A_REMOVED);
	ADD(A_QUEUE, NULL, DESCRIPTION_INOTIFY, .b = 1);
	ADD(A_MASTER, NULL, DESCRIPTION_MASTER);
	ADD(A_TERMINAL, NULL, DESCRIPTION_TERMINAL);
	ADD(A_SLOT, NULL, DESCRIPTION_SLOT);
	ADD(A_TIMER, NULL, DESCRIPTION_TIMERFD, .data = set);
	ADD(A_SOCKET, NULL, DESCRIPTION_SOCKET, .c = 1, .n_packets = 1, .n_options = 1);
	ADD(A_MEMORY, "shared", DESCRIPTION_MEMORY);
	ADD(A_MEMORY_AGAIN, "/memfd:shared", DESCRIPTION_UNLINKED, .a = 1 + A_MEMORY);
	ADD(A_SPARSE, "sparse", DESCRIPTION_MEMORY, .b = WINDOW_STASH, .c = 12288, .data = runs);
	ADD(A_WRITER_AGAIN, NULL, DESCRIPTION_PIPE_WRITE, .c = 1 + A_READER);
#undef ADD
}

static void add_sysv(struct image_writer *w)
{
	struct {
		struct image_message head;
		char text[5];
	} message = { { .length = 5, .type = 1 }, "text" };
	struct image_sysv shm = { .kind = SYSV_SHM, .size = 5000 },
			  sem = { .kind = SYSV_SEM, .size = 3 },
			  msg = { .kind = SYSV_MSG, .n_messages = 1 },
			  sparse = { .kind = SYSV_SPARSE, .size = 6, .n_messages = 1 };

	shm.data = text(w, "shared");
	sem.data = image_add_bytes(w, "\1\0\2\0\3\0", 6);
	msg.data = image_add_bytes(w, &message, sizeof(message.head) + 5);
	(void)IMAGE_ADD(w, TABLE_SYSV, &shm);
	(void)IMAGE_ADD(w, TABLE_SYSV, &sem);
	(void)IMAGE_ADD(w, TABLE_SYSV, &msg);
	sparse.data = msg.data; /* five bytes at one */
	(void)IMAGE_ADD(w, TABLE_SYSV, &sparse);
}

static void add_others(struct image_writer *w)
{
	struct image_fd fd = { .fd = 1, .description = A_WRITER };
	struct image_watch watch = { .epoll = 1, .target = 2, .description = IMAGE_NONE };
	struct image_lock lock = { .kind = IMAGE_LOCK_FLOCK };
	struct image_node first = { .link = IMAGE_NONE, .n_pieces = 1 }, second = { .link = 0 };
	struct image_piece piece = { .at = 4096, .data = text(w, "piece") };
	struct image_notification watched = { .wd = 1, .path = text(w, "/tmp") };
	struct image_packet packet = { .data = text(w, "packet"), .n_rights = 1 };
	struct image_option option = { .value = text(w, "option") };
	struct image_terminal terminal = { .slot = IMAGE_NONE };
	const uint32_t right = A_FILE;

	first.path = text(w, "/tmp/a");
	second.path = text(w, "/tmp/b");
	(void)IMAGE_ADD(w, TABLE_FDS, &fd);
	(void)IMAGE_ADD(w, TABLE_WATCHES, &watch);
	(void)IMAGE_ADD(w, TABLE_LOCKS, &lock);
	(void)IMAGE_ADD(w, TABLE_NODES, &first);
	(void)IMAGE_ADD(w, TABLE_NODES, &second);
	(void)IMAGE_ADD(w, TABLE_PIECES, &piece);
	(void)IMAGE_ADD(w, TABLE_NOTIFICATIONS, &watched);
	(void)IMAGE_ADD(w, TABLE_PACKETS, &packet);
	(void)IMAGE_ADD(w, TABLE_OPTIONS, &option);
	(void)IMAGE_ADD(w, TABLE_TERMINALS, &terminal);
	(void)IMAGE_ADD(w, TABLE_RIGHTS, &right);
}

/* Return: its part of the stash is what was used of it since. */
static void add_regions(struct image_writer *w)
{
	struct image_region anonymous = { .start = AT, .end = AT + 8192, .kind = REGION_ANON },
			    file = { .start = SECOND,
				    .end = SECOND + 8192,
				    .kind = REGION_FILE,
				    .n_patches = 1 },
			    segment = { .start = THIRD, .end = THIRD + 8192, .kind = REGION_SYSV };
	struct image_patch patch = { .target = SECOND + 4096, .length = 4096 };

	anonymous.stash = image_stash(w, AT, 8192, false);
	patch.stash = image_stash(w, SECOND, 8192, false) + 4096;
	image_copy(w, 100, AT, anonymous.stash, 8192);
	(void)IMAGE_ADD(w, TABLE_REGIONS, &anonymous);
	(void)IMAGE_ADD(w, TABLE_REGIONS, &file);
	(void)IMAGE_ADD(w, TABLE_REGIONS, &segment);
	(void)IMAGE_ADD(w, TABLE_PATCHES, &patch);
}

static struct made make(void)
{
	static const char xsave[576];
	struct image_process process = { .pid = PID,
		.n_threads = 1,
		.n_regions = 3,
		.n_guards = 1,
		.n_fds = 1,
		.n_watches = 1,
		.exe = A_FILE,
		.cwd = A_DIRECTORY,
		.root = IMAGE_NONE,
		.own_filters = 1,
		.shared_filters = 1 };
	struct image_thread thread = { .tid = PID, .n_filters = 1, .name = "sh" };
	struct image_guard guard = { AT, AT + 4096 };
	struct image_filter filter = { 0 };
	struct plan head = { .n_processes = 1,
		.n_descriptions = DESCRIPTIONS,
		.first_description = 16,
		.n_slots = 1 };
	struct plan_process planned = { .pid = PID, .parent = IMAGE_NONE };
	struct image_writer w;
	struct made m;

	image_writer_init(&w);
	add_descriptions(&w);
	planned.stash_start = w.stash;
	add_regions(&w);
	planned.stash_end = w.stash;
	add_sysv(&w);
	add_others(&w);
	thread.xsave = image_add_bytes(&w, xsave, sizeof(xsave));
	filter.code = image_add_bytes(&w, xsave, 16);
	process.groups = image_add_bytes(&w, xsave, 8);
	(void)IMAGE_ADD(&w, TABLE_PROCESSES, &process);
	(void)IMAGE_ADD(&w, TABLE_THREADS, &thread);
	(void)IMAGE_ADD(&w, TABLE_GUARDS, &guard);
	(void)IMAGE_ADD(&w, TABLE_FILTERS, &filter);
	m.plan = take(plan_seal(&w, &head, &planned), &m.plan_size);
	m.image = take(image_seal(&w), &m.image_size);
	image_writer_fini(&w);
	return m;
}

static void made_free(struct made *m)
{
	free(m->plan);
	free(m->image);
}

static void *member(const struct made *m, enum image_table table, size_t at)
{
	return (char *)m->image + m->image->tables[table].offset + at;
}

static const char *said(const char *wrong)
{
	return wrong == NULL ? "" : wrong;
}

TEST(what_is_right_passes)
{
	struct made m = make();

	check_str(said(plan_check(m.plan, m.plan_size)), "");
	check_str(said(image_check(m.image, m.image_size, m.plan)), "");
	made_free(&m);
}

TEST(what_is_cut_off_does_not)
{
	struct made m = make();

	for (size_t n = 0; n < m.plan_size; n += 4) {
		struct plan *part = xalloc(n + 1);

		memcpy(part, m.plan, n);
		check(plan_check(part, n) != NULL);
		free(part);
	}
	for (size_t n = 0; n < m.image_size; n += 32) {
		struct image_header *part = xalloc(n + 1);

		memcpy(part, m.image, n);
		check(image_check(part, n, m.plan) != NULL);
		/* also where it says that this is all */
		if (n >= sizeof(*part))
			part->size = n;
		check(image_check(part, n, m.plan) != NULL ||
			n >= m.image->tables[TABLE_BYTES].offset);
		free(part);
	}
	made_free(&m);
}

/** struct spoilt - a member of a row, what it is set to, and what is said then. */
struct spoilt {
	enum image_table table;
	size_t at, size;
	uint64_t to;
	const char *want;
};

#define ROW(table, index, type, name, to, want) \
	{ \
		table, (size_t)(index) * sizeof(type) + offsetof(type, name), \
			sizeof(((type *)0)->name), to, want \
	}
#define PROCESS(...)      ROW(TABLE_PROCESSES, 0, struct image_process, __VA_ARGS__)
#define THREAD(...)       ROW(TABLE_THREADS, 0, struct image_thread, __VA_ARGS__)
#define REGION(i, ...)    ROW(TABLE_REGIONS, i, struct image_region, __VA_ARGS__)
#define DESCRIBED(i, ...) ROW(TABLE_DESCRIPTIONS, i, struct image_description, __VA_ARGS__)
#define SYSV(i, ...)      ROW(TABLE_SYSV, i, struct image_sysv, __VA_ARGS__)

#define RANGE "rows are named that are not there"
#define SPAN  "a length of bytes ends behind them"
#define FAR   (1ULL << 40)
#define SOON  (1U << 20)

static const struct spoilt images[] = {
	PROCESS(pid, PID + 1, "a process is another one in the plan"),
	PROCESS(n_threads, 2, RANGE),
	PROCESS(n_threads, 0, "a process has no threads, or too many"),
	PROCESS(first_thread, SOON, RANGE),
	PROCESS(n_regions, 4, RANGE),
	PROCESS(first_region, ~0U, RANGE),
	PROCESS(n_guards, ~0U, RANGE),
	PROCESS(n_fds, 2, RANGE),
	PROCESS(n_watches, 2, RANGE),
	PROCESS(n_siginfos, 1, RANGE),
	PROCESS(n_timers, 1, RANGE),
	PROCESS(n_locks, 2, RANGE),
	PROCESS(exe, DESCRIPTIONS, "a process' program or directory is not there"),
	PROCESS(cwd, IMAGE_NONE, "a process' program or directory is not there"),
	PROCESS(root, DESCRIPTIONS, "a process' program or directory is not there"),
	PROCESS(groups.length, FAR, SPAN),
	PROCESS(groups.length, 3, SPAN),
	PROCESS(auxv.offset, FAR, SPAN),
	PROCESS(shared_filters, 2,
		"a process has filters that are not there, or is in no known state"),
	THREAD(tid, 0, "a thread has no number or name"),
	THREAD(name[15], 'x', "a thread has no number or name"),
	THREAD(xsave.length, FAR, SPAN),
	THREAD(xsave.length, 64, "a thread's registers do not fit into their frame"),
	THREAD(processors.offset, ~0ULL, SPAN),
	THREAD(n_siginfos, 1, RANGE),
	THREAD(n_filters, 2, RANGE),
	REGION(0, start, AT + 8192, "a mapping is where none can be"),
	REGION(0, start, AT + 1, "a mapping is where none can be"),
	REGION(0, end, SECOND + 4096, "a mapping is where none can be"),
	REGION(0, end, WINDOW_START + 4096, "a mapping is where none can be"),
	REGION(1, start, AT, "a mapping is where none can be"),
	REGION(0, prot, 8, "a mapping is where none can be"),
	REGION(0, stash, WINDOW_STASH - 4096, "a place in the stash is not of its process"),
	REGION(0, stash, WINDOW_RESIDUE, "a place in the stash is not of its process"),
	REGION(0, flags, REGION_INHERITED, "a place in the stash is not of its process"),
	REGION(0, kind, 0, "a mapping is of no known kind"),
	REGION(1, description, DESCRIPTIONS, "a file that is mapped is not there"),
	REGION(1, n_patches, 2, RANGE),
	REGION(0, n_patches, 1, "changed pages are not in their mapping"),
	REGION(2, n_patches, 1, "rows of memory belong to two processes"),
	REGION(2, description, 1, "a segment that is mapped is not there"),
	REGION(2, offset, 4096, "a segment that is mapped is not there"),
	REGION(2, kind, REGION_VDSO, ""),
	ROW(TABLE_PATCHES, 0, struct image_patch, target, AT,
		"changed pages are not in their mapping"),
	ROW(TABLE_PATCHES, 0, struct image_patch, length, 8192,
		"changed pages are not in their mapping"),
	ROW(TABLE_PATCHES, 0, struct image_patch, stash, WINDOW_IMAGE,
		"a place in the stash is not of its process"),
	ROW(TABLE_GUARDS, 0, struct image_guard, end, AT,
		"guards are where no program's memory is"),
	ROW(TABLE_GUARDS, 0, struct image_guard, end, WINDOW_END,
		"guards are where no program's memory is"),
	DESCRIBED(A_FILE, kind, 99, "a description is of no known kind"),
	DESCRIBED(A_FILE, path.length, 0, "a description has no name"),
	DESCRIBED(A_FILE, path.length, FAR, "a description has no name"),
	DESCRIBED(A_FILE, path.length, 3, "a description has no name"),
	DESCRIBED(A_FILE, data.length, FAR, SPAN),
	DESCRIBED(A_FILE, data.length, 8, "nobody says which file it was"),
	DESCRIBED(A_FILE, data.offset, 4, "nobody says which file it was"),
	DESCRIBED(A_FILE, place.length, FAR, "a directory has no end of names"),
	DESCRIBED(A_FILE, n_locks, 2, RANGE),
	DESCRIBED(A_FILE, peer, A_DIRECTORY, "something has an other end that has none"),
	DESCRIBED(A_FILE, owner.type, 4, "a description tells nobody of it"),
	DESCRIBED(A_READER, peer, DESCRIPTIONS, "an other end is not there"),
	DESCRIBED(A_READER, peer, A_READER, "an other end is not there"),
	DESCRIBED(A_READER, peer, A_FILE, "an other end is another's"),
	DESCRIBED(A_READER, peer, IMAGE_NONE, "an other end is another's"),
	DESCRIBED(A_WRITER, c, 1 + A_READER, "an end of a pipe is another's"),
	DESCRIBED(A_WRITER_AGAIN, c, 2 + A_WRITER_AGAIN, "an end of a pipe is another's"),
	DESCRIBED(A_WRITER_AGAIN, c, 1 + A_SLOT, "an end of a pipe is another's"),
	DESCRIBED(A_LISTENER, path.length, 1, "a description has no name"),
	DESCRIBED(A_REMOVED, path.length, 0, "a description has no name"),
	DESCRIBED(A_MEMORY_AGAIN, path.length, FAR, "a description has no name"),
	DESCRIBED(A_MEMORY_AGAIN, path.length, 0, ""),
	DESCRIBED(A_LISTENER, remote.length, 1, "a socket's address is none"),
	DESCRIBED(A_LISTENER, data.length, 5, SPAN),
	DESCRIBED(A_LISTENER, data.length, 0, "a connection waits at no listener"),
	DESCRIBED(A_LISTENER, data.length, 8, "a listener has connections that are not there"),
	DESCRIBED(A_PENDING, peer, A_FILE, "a listener has connections that are not there"),
	DESCRIBED(A_PENDING, kind, DESCRIPTION_SOCKET,
		"a listener has connections that are not there"),
	DESCRIBED(A_REMOVED, b, WINDOW_IMAGE, "what is in a file is not in the stash"),
	DESCRIBED(A_REMOVED, c, ~0ULL, "what is in a file is not in the stash"),
	DESCRIBED(A_REMOVED_AGAIN, a, 2 + A_REMOVED_AGAIN, "a file without a name is another's"),
	DESCRIBED(A_REMOVED_AGAIN, a, 1 + A_FILE, "a file without a name is another's"),
	DESCRIBED(A_MEMORY_AGAIN, a, 1 + A_SOCKET, "a file without a name is another's"),
	DESCRIBED(A_QUEUE, b, 2, RANGE),
	DESCRIBED(A_QUEUE, a, ~0ULL, RANGE),
	DESCRIBED(A_MASTER, a, 1, "a terminal is not there"),
	DESCRIBED(A_TERMINAL, a, 1ULL << 32, "a terminal is not there"),
	DESCRIBED(A_SLOT, a, 1, "the keeper has no such end"),
	DESCRIBED(A_TIMER, data.length, 8, "a timer is not set"),
	DESCRIBED(A_SOCKET, n_packets, 2, RANGE),
	DESCRIBED(A_SOCKET, first_option, 1, RANGE),
	DESCRIBED(A_SOCKET, position, SOCKET_NAMELESS,
		"a socket's name was removed that it never had"),
	DESCRIBED(A_SOCKET, folder.length, 1U << 30, "a socket's place is none"),
	DESCRIBED(A_SOCKET, place.length, 1U << 30, "a socket's place is none"),
	DESCRIBED(A_SOCKET, place.length, 1, "a socket's name was changed that it never had"),
	DESCRIBED(A_MEMORY, c, 1, "what is in a file is not in the stash"),
	DESCRIBED(A_SPARSE, c, 8192, "what is in a file is not in the stash"),
	DESCRIBED(A_SPARSE, c, ~0ULL, "what is in a file is not in the stash"),
	DESCRIBED(A_SPARSE, b, 4096, "what is in a file is not in the stash"),
	DESCRIBED(A_SPARSE, data.length, 24, "what is in a file is not in the stash"),
	DESCRIBED(A_SPARSE, data.offset, 4, "what is in a file is not in the stash"),
	DESCRIBED(A_SPARSE, data.length, FAR, SPAN),
	ROW(TABLE_FDS, 0, struct image_fd, description, DESCRIPTIONS, "a descriptor is of nothing"),
	ROW(TABLE_FDS, 0, struct image_fd, fd, 16, "a descriptor is of nothing"),
	ROW(TABLE_FDS, 0, struct image_fd, fd, ~0U, "a descriptor is of nothing"),
	ROW(TABLE_WATCHES, 0, struct image_watch, description, DESCRIPTIONS,
		"an epoll set waits for nothing"),
	SYSV(0, kind, SYSV_SPARSE + 1, "a System V object is of no known kind"),
	SYSV(0, id, ~0U, "a System V object has no number"),
	SYSV(0, data.length, FAR, SPAN),
	SYSV(0, size, 4, "a System V object has not what is in it"),
	SYSV(0, size, ~0ULL, "a System V object has not what is in it"),
	SYSV(1, size, 4, "a System V object has not what is in it"),
	SYSV(2, n_messages, 2, "a System V object has not what is in it"),
	SYSV(2, data.length, 18, "a System V object has not what is in it"),
	SYSV(3, size, 5, "a System V object has not what is in it"),
	SYSV(3, size, ~0ULL, "a System V object has not what is in it"),
	SYSV(3, n_messages, 2, "a System V object has not what is in it"),
	ROW(TABLE_TERMINALS, 0, struct image_terminal, slot, 1, "a terminal has no master"),
	ROW(TABLE_TERMINALS, 0, struct image_terminal, input.length, FAR, SPAN),
	ROW(TABLE_LOCKS, 0, struct image_lock, kind, 4, "a lock is of no kind"),
	ROW(TABLE_NODES, 0, struct image_node, path.length, 0, "an entry in memory has no name"),
	ROW(TABLE_NODES, 0, struct image_node, n_pieces, 2, RANGE),
	ROW(TABLE_NODES, 1, struct image_node, link, 1,
		"an entry in memory is another's before that is there"),
	ROW(TABLE_PIECES, 0, struct image_piece, data.length, FAR, SPAN),
	ROW(TABLE_PIECES, 0, struct image_piece, at, ~0ULL, SPAN),
	ROW(TABLE_NOTIFICATIONS, 0, struct image_notification, path.offset, FAR,
		"an inotify queue watches nothing"),
	ROW(TABLE_PACKETS, 0, struct image_packet, data.length, FAR, SPAN),
	ROW(TABLE_PACKETS, 0, struct image_packet, from.length, 1, SPAN),
	ROW(TABLE_PACKETS, 0, struct image_packet, n_rights, 2, RANGE),
	{ TABLE_RIGHTS, 0, 4, DESCRIPTIONS, "a descriptor waits that is of nothing" },
	ROW(TABLE_FILTERS, 0, struct image_filter, code.length, 12, SPAN),
	ROW(TABLE_OPTIONS, 0, struct image_option, value.length, FAR, SPAN),
};

TEST(each_place_of_an_image_is_looked_at)
{
	for (size_t i = 0; i < ARRAY_SIZE(images); i++) {
		const struct spoilt *s = &images[i];
		struct made m = make();

		memcpy(member(&m, s->table, s->at), &s->to, s->size);
		check_str(said(image_check(m.image, m.image_size, m.plan)), s->want);
		made_free(&m);
	}
}

TEST(tables_are_where_they_are_said_to_be)
{
	struct made m = make();
	struct image_header was = *m.image;

#define HEAD(name, to, want) \
	do { \
		m.image->name = (to); \
		check_str(said(image_check(m.image, m.image_size, m.plan)), want); \
		*m.image = was; \
	} while (0)
	HEAD(magic, 0, "it is none");
	HEAD(version, IMAGE_VERSION + 1, "it is of another version");
	HEAD(size, m.image_size + 1, "it ends too early");
	for (int t = 0; t < TABLE_COUNT; t++) {
		HEAD(tables[t].offset, m.image_size + 8, "a table is not in it");
		HEAD(tables[t].offset, 0, "a table is not in it");
		HEAD(tables[t].offset, was.tables[t].offset + 1, "a table is not in it");
		HEAD(tables[t].count, ~0ULL, "a table is not in it");
		if (t != TABLE_BYTES)
			HEAD(tables[t].count, was.tables[t].count + 1, "a table is not in it");
	}
	m.plan->n_descriptions++;
	HEAD(magic, IMAGE_MAGIC, "the plan is of another one");
	made_free(&m);
}

#define PLAN(name, to, want) ROW(0, 0, struct plan, name, to, want)
#define PLANNED(name, to, want) \
	{ \
		1, sizeof(struct plan) + offsetof(struct plan_process, name), \
			sizeof(((struct plan_process *)0)->name), to, want \
	}

static const struct spoilt plans[] = {
	PLAN(magic, 0, "it is none"),
	PLAN(version, 0, "it is of another version"),
	PLAN(n_processes, ~0U, "there is too much of something"),
	PLAN(n_maps, ~0U, "there is too much of something"),
	PLAN(n_copies, ~0U, "there is too much of something"),
	PLAN(n_slots, ~0U, "there is too much of something"),
	PLAN(n_leaves, ~0U, "there is too much of something"),
	PLAN(first_description, ~0U, "there is too much of something"),
	PLAN(first_description, PLAN_FIRST_DESCRIPTION - 1, "its descriptions begin too low"),
	PLAN(n_copies, 4, "it ends too early"),
	PLAN(n_leaves, 1, ""),
	PLANNED(pid, 1, "a process has no number, or no known one"),
	PLANNED(pid, ~0U, "a process has no number, or no known one"),
	PLANNED(flags, 1U << 31, "a process has no number, or no known one"),
	PLANNED(flags, PLAN_ZOMBIE, "a process that goes on is in no image"),
	PLANNED(flags, PLAN_NO_TERMINAL, "a process has a terminal that is not there"),
	PLANNED(flags, 1U << PLAN_SIGNAL, "a process ends with a signal that cannot be"),
	PLANNED(parent, 0, "a process comes before its parent"),
	PLANNED(terminal, DESCRIPTIONS + 1, "a process has a terminal that is not there"),
	PLANNED(foreground, PID, "a process has a terminal that is not there"),
	PLANNED(image, IMAGE_NONE, "a process that goes on is in no image"),
	PLANNED(stash_end, WINDOW_END + 4096, "a process' memory is not in the stash"),
	PLANNED(stash_start, 4096, "a process' memory is not in the stash"),
	PLANNED(base, PID, "a process has memory of one that it does not come from"),
};

TEST(each_place_of_a_plan_is_looked_at)
{
	struct plan_map *maps;
	struct plan_copy *copies;
	struct made m;

	for (size_t i = 0; i < ARRAY_SIZE(plans); i++) {
		m = make();
		memcpy((char *)m.plan + plans[i].at, &plans[i].to, plans[i].size);
		check_str(said(plan_check(m.plan, m.plan_size)), plans[i].want);
		made_free(&m);
	}
	m = make();
	maps = (struct plan_map *)(void *)((struct plan_process *)(m.plan + 1) + 1);
	copies = (struct plan_copy *)(maps + m.plan->n_maps);
	copies->length = ~0ULL;
	check_str(said(plan_check(m.plan, m.plan_size)), "what is copied is not in the stash");
	maps[1].address = WINDOW_START;
	check_str(said(plan_check(m.plan, m.plan_size)), "a mapping is not in the stash");
	made_free(&m);
}

/* In a plan that is right itself: the image has no such process. */
TEST(both_belong_together)
{
	struct made m = make();
	struct plan_process *p = (struct plan_process *)(m.plan + 1);

	p->image = 1;
	check_str(said(plan_check(m.plan, m.plan_size)), "");
	check_str(said(image_check(m.image, m.image_size, m.plan)), "a process is not in it");
	p->image = 0;
	p->stash_end = p->stash_start;
	check_str(said(image_check(m.image, m.image_size, m.plan)),
		"a place in the stash is not of its process");
	made_free(&m);
}

/* --- memory of a relative --- */

#define CHILD 9

/* Two processes, the second of which has the memory of the first, but for one page of its own and one that it has not. */
static struct made make_relatives(void)
{
	struct image_process one = { .pid = PID,
		.n_threads = 1,
		.n_regions = 1,
		.root = IMAGE_NONE },
			     two = { .pid = CHILD,
				     .n_threads = 1,
				     .first_thread = 1,
				     .first_region = 1,
				     .n_regions = 1,
				     .root = IMAGE_NONE };
	struct image_description file = { .kind = DESCRIPTION_FILE, .peer = IMAGE_NONE };
	struct image_thread threads[] = { { .tid = PID }, { .tid = CHILD } };
	struct image_region region = { .start = AT, .end = AT + 32768, .kind = REGION_ANON };
	struct image_patch own = { .target = AT, .length = 4096 },
			   none = { .target = AT + 4096, .length = 4096 };
	struct plan head = { .n_processes = 2, .n_descriptions = 1, .first_description = 16 };
	struct plan_process planned[] = { { .pid = PID, .parent = IMAGE_NONE },
		{ .pid = CHILD, .image = 1, .base = PID } };
	struct image_writer w;
	struct made m;

	image_writer_init(&w);
	file.path = text(&w, "/bin/sh");
	(void)IMAGE_ADD(&w, TABLE_DESCRIPTIONS, &file);
	planned[0].stash_start = w.stash;
	region.stash = image_stash(&w, AT, 32768, false);
	planned[0].stash_end = planned[1].stash_start = w.stash;
	own.stash = image_stash(&w, AT, 32768, false);
	planned[1].stash_end = w.stash;
	for (int i = 0; i < 2; i++) {
		threads[i].xsave = image_add_bytes(&w, (char[576]){ 0 }, 576);
		(void)IMAGE_ADD(&w, TABLE_THREADS, &threads[i]);
		(void)IMAGE_ADD(&w, TABLE_REGIONS, &region);
		region.flags = REGION_INHERITED;
		region.offset = 16384;
		region.n_patches = 2;
	}
	(void)IMAGE_ADD(&w, TABLE_PATCHES, &own);
	(void)IMAGE_ADD(&w, TABLE_PATCHES, &none);
	(void)IMAGE_ADD(&w, TABLE_PROCESSES, &one);
	(void)IMAGE_ADD(&w, TABLE_PROCESSES, &two);
	m.plan = take(plan_seal(&w, &head, planned), &m.plan_size);
	m.image = take(image_seal(&w), &m.image_size);
	image_writer_fini(&w);
	return m;
}

#define PATCH(i, ...) ROW(TABLE_PATCHES, i, struct image_patch, __VA_ARGS__)
#define NOT_ITS_OWN   "a place in the stash is not of its process"

static const struct spoilt relatives[] = {
	REGION(1, end, AT + 32768, ""),
	REGION(1, stash, WINDOW_STASH - 4096, NOT_ITS_OWN),
	REGION(1, stash, WINDOW_STASH + (1U << 30), NOT_ITS_OWN),
	REGION(1, offset, 0, NOT_ITS_OWN),
	REGION(1, offset, 100, NOT_ITS_OWN),
	REGION(1, offset, 36864, NOT_ITS_OWN),
	REGION(1, flags, 0, NOT_ITS_OWN),
	REGION(0, flags, REGION_INHERITED, NOT_ITS_OWN),
	PATCH(0, stash, WINDOW_STASH, NOT_ITS_OWN),
	PATCH(0, target, AT - 4096, "changed pages are not in their mapping"),
	PATCH(1, length, 32768, "changed pages are not in their mapping"),
};

TEST(memory_of_a_relative_is_looked_at)
{
	for (size_t i = 0; i < ARRAY_SIZE(relatives); i++) {
		struct made m = make_relatives();

		check_str(said(plan_check(m.plan, m.plan_size)), "");
		memcpy(member(&m, relatives[i].table, relatives[i].at), &relatives[i].to,
			relatives[i].size);
		check_str(said(image_check(m.image, m.image_size, m.plan)), relatives[i].want);
		made_free(&m);
	}
}

TEST(a_row_is_one_that_was_added)
{
	struct image_guard guard = { AT, AT + 4096 };
	struct image_writer w;

	image_writer_init(&w);
	(void)IMAGE_ADD(&w, TABLE_GUARDS, &guard);
	check(image_row(&w, TABLE_GUARDS, 0, sizeof(guard)) == w.tables[TABLE_GUARDS].p);
	check_aborts((void)image_row(&w, TABLE_GUARDS, 1, sizeof(guard)));
	check_aborts((void)image_row(&w, TABLE_GUARDS, IMAGE_NONE, sizeof(guard)));
	image_writer_fini(&w);
}

/* It was there before. */
TEST(a_relative_is_an_ancestor)
{
	static const char wrong[] = "a process has memory of one that it does not come from";
	struct made m = make_relatives();
	struct plan_process *p = (struct plan_process *)(m.plan + 1);

	p[1].base = CHILD;
	check_str(said(plan_check(m.plan, m.plan_size)), wrong);
	p[1].base = PID;
	p[1].parent = IMAGE_NONE;
	check_str(said(plan_check(m.plan, m.plan_size)), wrong);
	made_free(&m);
}
