/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_sysv.c - System V shared memory, semaphores and message queues of the sandbox, whoever uses them: they belong to its ipc namespace.
 *
 * The dumper joins that namespace for good. Segments are read through an attachment of our own, as far as there is something; messages by MSG_COPY, which leaves them where they are.
 * What a process would give back at its end (SEM_UNDO) the kernel tells nobody, but it has bounds: operations that fail in any case, and so change nothing, fail in another way where
 * they lead beyond these. A process that would give back something is refused.
 */
#include "checkpoint/dump.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

#ifndef SHM_STAT_ANY
#define SHM_STAT_ANY 15
#endif
#ifndef SEM_STAT_ANY
#define SEM_STAT_ANY 20
#endif
#ifndef MSG_STAT_ANY
#define MSG_STAT_ANY 13
#endif
#ifndef MSG_COPY
#define MSG_COPY 040000
#endif

#define MESSAGE_MAX (1U << 20)

#define SEMAPHORE_MAX 32767 /* SEMVMX, SEMAEM */
#define OPERATIONS_MAX \
	500         /* SEMOPM, unless somebody has set it; they fit into the memory for results */
#define TEST_MAX 14 /* of them for one semaphore, see add_test() */

union semaphore_argument {
	int value;
	struct semid_ds *about;
	unsigned short *all;
	struct seminfo *limits;
};

static struct image_sysv describe(uint32_t kind, int id, const struct ipc_perm *perm)
{
	return (struct image_sysv){ .kind = kind,
		.id = id,
		.key = perm->__key,
		.mode = perm->mode & 0777,
		.uid = perm->uid,
		.gid = perm->gid,
		.cuid = perm->cuid,
		.cgid = perm->cgid };
}

/* --- shared memory --- */

/* What is there of @n bytes at @bytes. Our own attachment: the kernel tells without making any. */
static int look_at(const unsigned char *bytes, uint64_t n, struct page_set *ret)
{
	static unsigned char vector[65536];
	int rc = page_set_room(ret, n);

	for (uint64_t at = 0; rc == 0 && at < n; at += sizeof(vector) * IMAGE_PAGE) {
		uint64_t pages = (n - at + IMAGE_PAGE - 1) / IMAGE_PAGE;

		pages = pages < sizeof(vector) ? pages : sizeof(vector);
		if (mincore((void *)(uintptr_t)(bytes + at), pages * IMAGE_PAGE, vector) < 0)
			rc = -errno;
		else
			(void)dump_holes_add(vector, pages, at, ret);
	}
	return rc;
}

/* Only what is there. */
static int add_parts(
	struct dump *d, const char *bytes, const struct page_set *there, struct image_sysv *out)
{
	cleanup_buf struct buf all = BUF_INIT(1ULL << 32);
	uint64_t at = 0;
	struct page_run run;

	while (page_set_next(there, NULL, &at, out->size, &run)) {
		const struct image_message head = { .length = run.end - run.start,
			.type = (int64_t)run.start };

		buf_add(&all, &head, sizeof(head));
		buf_add(&all, bytes + run.start, head.length);
		out->n_messages++;
	}
	out->kind = SYSV_SPARSE;
	out->data = image_add_bytes(&d->image, all.p, all.n);
	return buf_failed(&all) ? -ENOMEM : 0;
}

/* @swapped: something of some segment is, which looks like a hole. */
static int add_bytes(struct dump *d, const char *bytes, bool swapped, struct image_sysv *out)
{
	struct page_set there = { 0 };
	uint64_t at = 0;
	struct page_run run;
	int rc = 0;

	if (swapped || look_at((const unsigned char *)bytes, out->size, &there) < 0 ||
		(page_set_next(&there, NULL, &at, out->size, &run) && run.start == 0 &&
			run.end == out->size))
		out->data = image_add_bytes(&d->image, bytes, out->size);
	else
		rc = add_parts(d, bytes, &there, out);
	page_set_fini(&there);
	return rc;
}

static int add_segment(struct dump *d, int id, const struct shmid_ds *about, bool swapped)
{
	struct image_sysv out = describe(SYSV_SHM, id, &about->shm_perm);
	void *bytes = shmat(id, NULL, SHM_RDONLY);
	int rc;

	if (bytes == (void *)-1)
		return -errno;
	out.size = about->shm_segsz;
	out.flags = ((about->shm_perm.mode & SHM_DEST) != 0 ? SYSV_REMOVED : 0U) |
		    ((about->shm_perm.mode & SHM_LOCKED) != 0 ? SYSV_LOCKED : 0U);
	rc = add_bytes(d, bytes, swapped, &out);
	(void)IMAGE_ADD(&d->image, TABLE_SYSV, &out);
	return shmdt(bytes) < 0 ? -errno : rc;
}

static int add_segments(struct dump *d)
{
	struct shm_info info;
	int last = shmctl(0, SHM_INFO, (struct shmid_ds *)(void *)&info), rc = 0;

	for (int i = 0; rc == 0 && i <= last; i++) {
		struct shmid_ds about;
		int id = shmctl(i, SHM_STAT_ANY, &about);

		if (id >= 0)
			rc = add_segment(d, id, &about, info.shm_swp != 0);
		else if (errno != EINVAL && errno != EIDRM)
			rc = -errno;
	}
	return last < 0 ? -errno : rc;
}

/* --- semaphores --- */

static int add_set(struct dump *d, int id, const struct semid_ds *about)
{
	struct image_sysv out = describe(SYSV_SEM, id, &about->sem_perm);
	unsigned short *values = calloc(about->sem_nsems, sizeof(*values));
	int rc;

	if (values == NULL)
		return -ENOMEM;
	rc = semctl(id, 0, GETALL, (union semaphore_argument){ .all = values }) < 0 ? -errno : 0;
	out.size = about->sem_nsems;
	out.data = image_add_bytes(&d->image, values, about->sem_nsems * sizeof(*values));
	(void)IMAGE_ADD(&d->image, TABLE_SYSV, &out);
	free(values);
	return rc;
}

static int add_sets(struct dump *d, size_t *n)
{
	struct seminfo info;
	int last = semctl(0, 0, SEM_INFO, (union semaphore_argument){ .limits = &info }), rc = 0;

	*n = 0;
	for (int i = 0; rc == 0 && i <= last; i++) {
		struct semid_ds about;
		int id = semctl(i, 0, SEM_STAT_ANY, (union semaphore_argument){ .about = &about });

		if (id >= 0) {
			rc = add_set(d, id, &about);
			++*n;
		} else if (errno != EINVAL && errno != EIDRM) {
			rc = -errno;
		}
	}
	return last < 0 ? -errno : rc;
}

/** struct operations - for one semop(2). */
struct operations {
	struct sembuf list[OPERATIONS_MAX];
	size_t n;
};

static void add_operation(struct operations *o, unsigned short which, int by, int flags)
{
	if (by != 0) /* that would wait for zero */
		o->list[o->n++] = (struct sembuf){ which, (short)by, (short)flags };
}

/* What would be given back of a semaphore that is @value becomes @SEMAPHORE_MAX more, or less, and its value stays. */
static void swing(struct operations *o, unsigned short which, unsigned short value, bool more)
{
	const int room = SEMAPHORE_MAX - value, rise = more ? 0 : SEM_UNDO, fall = SEM_UNDO - rise;

	add_operation(o, which, room, rise);
	add_operation(o, which, -room, fall);
	add_operation(o, which, -value, fall);
	add_operation(o, which, value, rise);
}

/* All that may be given back, as much and once more as little: from nothing both can be reached, from anything else one of them not. */
static void add_test(struct operations *o, unsigned short which, unsigned short value)
{
	const int first = value < SEMAPHORE_MAX ? 1 : -1;

	swing(o, which, value, true);
	swing(o, which, value, false);
	swing(o, which, value, false);
	add_operation(o, which, first, first > 0 ? SEM_UNDO : 0);
	add_operation(o, which, -first, first > 0 ? 0 : SEM_UNDO);
}

/* So that nothing is done: it would have to wait. */
static void add_failure(struct operations *o, unsigned short which, unsigned short value)
{
	o->list[o->n++] = (struct sembuf){ which, value == 0 ? -1 : 0, IPC_NOWAIT };
}

/* Return: -EAGAIN: @p would give back nothing of the set @s; -ERANGE: it would; else who knows. */
static int ask_undo(struct tracee *t, const struct image_sysv *s, const unsigned short *values)
{
	int rc = tracee_scratch(t) < 0 ? -ENOMEM : -EAGAIN;

	for (size_t i = 0; rc == -EAGAIN && i < s->size;) {
		struct operations o = { .n = 0 };

		while (i < s->size && o.n + TEST_MAX < OPERATIONS_MAX) {
			add_test(&o, (unsigned short)i, values[i]);
			i++;
		}
		add_failure(&o, (unsigned short)(i - 1), values[i - 1]);
		rc = tracee_write(t, t->scratch, o.list, o.n * sizeof(o.list[0]));
		if (rc == 0)
			rc = (int)TRACEE_CALL(t, 0, SYS_semop, (uint64_t)s->id, t->scratch, o.n);
	}
	return rc;
}

static int check_undo(struct dump *d, struct dump_process *p, struct err *err)
{
	uint32_t n = image_count(&d->image, TABLE_SYSV, sizeof(struct image_sysv));
	int rc = buf_failed(&d->image.tables[TABLE_BYTES]) ? -ENOMEM : -EAGAIN;

	for (uint32_t i = 0; rc == -EAGAIN && i < n; i++) {
		const struct image_sysv *s = image_row(&d->image, TABLE_SYSV, i, sizeof(*s));

		if (s->kind == SYSV_SEM)
			rc = ask_undo(&p->tracee, s,
				(const unsigned short *)(const void *)(d->image.tables[TABLE_BYTES]
									       .p +
								       s->data.offset));
	}
	if (rc == -EAGAIN)
		return 0;
	if (rc == -ERANGE) {
		(void)dump_refuse(p, err,
			"it has used a System V semaphore with SEM_UNDO, and has not given back all: this cannot be carried over");
		err->code = ERR_BUSY; /* it may give back the rest any moment: to be tried again */
		return -EBUSY;
	}
	return dump_refuse(p, err,
		"it may have used a System V semaphore with SEM_UNDO, which cannot be carried over: it may not be asked (%s)",
		strerror(-rc));
}

/* Who has threads has such a list, whatever is in it. */
static bool has_threads(const struct dump_process *p)
{
	return proc_number(buf_cstr(&p->tracee.status), "Threads", 10, 1) > 1;
}

/* We have no such list: a process of which the kernel says the same as of us has none either. */
static int refuse_undo(struct dump *d, struct err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < d->n; i++) {
		struct dump_process *p = &d->processes[i];

		if (p->tracee.zombie || (d->examination != NULL && tracee_is_closed(&p->tracee)) ||
			raw_kcmp(getpid(), p->tracee.host, KCMP_SYSVSEM, 0, 0) == 0)
			continue;
		if (d->examination == NULL)
			rc = check_undo(d, p, err);
		else if (!has_threads(p))
			rc = dump_refuse(p, err,
				"it has used a System V semaphore with SEM_UNDO, which cannot be carried over unless it has given back all");
	}
	return rc;
}

/* --- messages --- */

static int read_messages(int id, size_t n, struct buf *all)
{
	struct {
		long type;
		char text[MESSAGE_MAX];
	} *message = malloc(sizeof(*message));
	int rc = message == NULL ? -ENOMEM : 0;

	for (size_t i = 0; rc == 0 && i < n; i++) {
		ssize_t length = msgrcv(id, message, MESSAGE_MAX, (long)i, MSG_COPY | IPC_NOWAIT);
		struct image_message head = { .type = length < 0 ? 0 : message->type,
			.length = (uint64_t)length };

		if (length < 0) {
			rc = -errno;
			break;
		}
		buf_add(all, &head, sizeof(head));
		buf_add(all, message->text, (size_t)length);
	}
	free(message);
	return rc == 0 && buf_failed(all) ? -ENOMEM : rc;
}

static int add_queue(struct dump *d, int id, const struct msqid_ds *about)
{
	struct image_sysv out = describe(SYSV_MSG, id, &about->msg_perm);
	cleanup_buf struct buf all = BUF_INIT(1 << 30);
	int rc = read_messages(id, about->msg_qnum, &all);

	out.size = about->msg_qbytes;
	out.n_messages = (uint32_t)about->msg_qnum;
	out.data = image_add_bytes(&d->image, all.p, all.n);
	(void)IMAGE_ADD(&d->image, TABLE_SYSV, &out);
	return rc;
}

static int add_queues(struct dump *d)
{
	struct msginfo info;
	int last = msgctl(0, MSG_INFO, (struct msqid_ds *)(void *)&info), rc = 0;

	for (int i = 0; rc == 0 && i <= last; i++) {
		struct msqid_ds about;
		int id = msgctl(i, MSG_STAT_ANY, &about);

		if (id >= 0)
			rc = add_queue(d, id, &about);
		else if (errno != EINVAL && errno != EIDRM)
			rc = -errno;
	}
	return last < 0 ? -errno : rc;
}

/* --- all --- */

static int join(const struct dump *d)
{
	char path[40];
	cleanup_fd int ipc = -1;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/ipc", d->order->init_pid);
	ipc = open(path, O_RDONLY | O_CLOEXEC);
	return ipc < 0 || setns(ipc, CLONE_NEWIPC) < 0 ? -errno : 0;
}

int dump_sysv(struct dump *d, struct err *err)
{
	size_t n_sets = 0;
	int rc = join(d);

	if (rc == 0)
		rc = add_segments(d);
	if (rc == 0)
		rc = add_sets(d, &n_sets);
	if (rc == 0)
		rc = add_queues(d);
	if (rc < 0)
		return err_raise_sys(err, rc, "look at the System V objects of the sandbox");
	if (d->image.tables[TABLE_SYSV].n > 0 && access("/proc/sys/kernel/shm_next_id", F_OK) < 0)
		return err_raise(err, ERR_UNSUPPORTED,
			"the sandbox has System V objects, whose ids this kernel lets nobody choose");
	return n_sets > 0 ? refuse_undo(d, err) : 0;
}

uint32_t dump_sysv_find(const struct dump *d, uint64_t id)
{
	uint32_t n = image_count(&d->image, TABLE_SYSV, sizeof(struct image_sysv));
	const struct image_sysv *all =
		(const struct image_sysv *)(const void *)d->image.tables[TABLE_SYSV].p;

	for (uint32_t i = 0; i < n; i++) {
		if (image_is_segment(&all[i]) && (uint64_t)all[i].id == id)
			return i;
	}
	return IMAGE_NONE;
}
