/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/sysv.c - System V objects with the ids, keys, owners and contents that they had.
 *
 * No capability of the payload's counts in the ipc namespace, which belongs to U1: who creates or attaches is, for that moment, the object's creator by
 * its effective ids, and until all have attached the creator may do everything.
 */
#include "prog/cay-template/fork.h"

#define CREATE_NEW 03000 /* IPC_CREAT | IPC_EXCL */
#define OWNER_ONLY 0600
#define NO_WAIT    04000
#define IPC_RMID   0
#define IPC_SET    1
#define SETALL     17
#define SHM_LOCK   11
#define SHM_RDONLY 010000
#define SHM_EXEC   0100000

typedef const struct image_sysv object;

/* struct ipc64_perm, with which the three kinds of IPC_SET begin */
struct permissions {
	int32_t key;
	uint32_t uid, gid, cuid, cgid, mode;
	uint64_t reserved[3];
};

/* --- in T' --- */

/* Not so in images that are older than PLAN_NO_SYSV, whatever they have. */
bool sysv_is_planned(void)
{
	const struct plan_process *all = plan_processes();

	for (uint32_t i = 0; i < plan->n_processes; i++) {
		if ((all[i].flags & PLAN_NO_SYSV) == 0)
			return true;
	}
	return false;
}

/*
 * What a file in it means depends on the ipc namespace of who opens it: the kernel keeps an entry for each namespace that lives, under one name of one directory, so in one chain of its hash.
 * To open one more takes as long as it takes to look at all of them (0.2 us each, and three files).
 */
void sysv_open_ids(int directory)
{
	static const char *const names[SYSV_KINDS] = {
		[SYSV_SHM] = "shm_next_id", [SYSV_SEM] = "sem_next_id", [SYSV_MSG] = "msg_next_id"
	};

	for (int i = 0; i < SYSV_KINDS; i++) {
		long fd = directory < 0
				  ? -1
				  : CALL4(__NR_openat, directory, names[i], 1 | BARE_CLOEXEC, 0);

		fork.next_ids[i] = fd < 0 ? -1 : (int)fd;
	}
}

/* --- in the opener --- */

static void act_as(uint32_t uid, uint32_t gid)
{
	if (fork.order.single_id == 0)
		(void)fork_must(CALL3(__NR_setresgid, -1, gid, -1), "act as a creator's group");
	(void)fork_must(CALL3(__NR_setresuid, -1, uid, -1), "act as a creator");
}

static uint32_t count(void)
{
	return (uint32_t)(image->tables[TABLE_SYSV].count / sizeof(struct image_sysv));
}

void sysv_attach(object *s, uint64_t at, uint32_t access)
{
	act_as(s->cuid, s->cgid);
	(void)fork_must(
		CALL3(__NR_shmat, s->id, at,
			((access & 2) == 0 ? SHM_RDONLY : 0) | ((access & 4) != 0 ? SHM_EXEC : 0)),
		"attach System V shared memory");
	act_as(0, 0);
}

static void put_parts(object *s, uint64_t at)
{
	const char *from = image_bytes(s->data);

	for (uint32_t i = 0; i < s->n_messages; i++) {
		struct image_message head;

		memcpy(&head, from, sizeof(head));
		memcpy((void *)(at + (uint64_t)head.type), from + sizeof(head), head.length);
		from += sizeof(head) + head.length;
	}
}

static void make_segment(object *s)
{
	uint64_t at;

	if (fork_must(CALL3(__NR_shmget, s->key, s->size, CREATE_NEW | OWNER_ONLY),
		    "make System V shared memory") != s->id)
		fork_fail("get the id of System V shared memory", -EEXIST);
	at = (uint64_t)fork_must(CALL3(__NR_shmat, s->id, 0, 0), "attach System V shared memory");
	if (s->kind == SYSV_SPARSE)
		put_parts(s, at);
	else
		memcpy((void *)at, image_bytes(s->data), s->data.length);
}

static void make_set(object *s)
{
	if (fork_must(CALL3(__NR_semget, s->key, s->size, CREATE_NEW | OWNER_ONLY),
		    "make System V semaphores") != s->id)
		fork_fail("get the id of System V semaphores", -EEXIST);
	(void)fork_must(CALL4(__NR_semctl, s->id, 0, SETALL, image_bytes(s->data)),
		"set System V semaphores");
}

static void make_queue(object *s)
{
	const char *at = image_bytes(s->data);

	if (fork_must(CALL2(__NR_msgget, s->key, CREATE_NEW | OWNER_ONLY),
		    "make a System V message queue") != s->id)
		fork_fail("get the id of a System V message queue", -EEXIST);
	for (uint32_t i = 0; i < s->n_messages; i++) {
		struct image_message head;

		memcpy(&head, at, sizeof(head));
		(void)fork_must(CALL4(__NR_msgsnd, s->id, at + offsetof(struct image_message, type),
					head.length, NO_WAIT),
			"fill a System V message queue");
		at += sizeof(head) + head.length;
	}
}

void sysv_make(int socket)
{
	static void (*const make[])(object *) = { [SYSV_SHM] = make_segment,
		[SYSV_SEM] = make_set,
		[SYSV_MSG] = make_queue,
		[SYSV_SPARSE] = make_segment };

	for (uint32_t i = 0; i < count(); i++) {
		object *s = IMAGE_ROW(struct image_sysv, TABLE_SYSV, i);

		opener_next_id(socket,
			image_is_segment(s) ? SYSV_SHM : (enum image_sysv_kind)s->kind, s->id);
		act_as(s->cuid, s->cgid);
		make[s->kind](s);
		act_as(0, 0);
	}
}

static void set_owner(object *s)
{
	/* struct shmid64_ds, semid64_ds or msqid64_ds: of a queue its limit counts too */
	struct {
		struct permissions permissions;
		uint64_t times[3], bytes, messages, limit, rest[4];
	} about = { .permissions = { .uid = s->uid, .gid = s->gid, .mode = s->mode },
		.limit = s->size };
	long rc;

	if (image_is_segment(s))
		rc = CALL3(__NR_shmctl, s->id, IPC_SET, &about);
	else if (s->kind == SYSV_SEM)
		rc = CALL4(__NR_semctl, s->id, 0, IPC_SET, &about);
	else
		rc = CALL3(__NR_msgctl, s->id, IPC_SET, &about);
	(void)fork_must(rc, "set the owner of a System V object");
}

void sysv_finish(void)
{
	for (uint32_t i = 0; i < count(); i++) {
		object *s = IMAGE_ROW(struct image_sysv, TABLE_SYSV, i);

		act_as(s->cuid, s->cgid);
		set_owner(s);
		if ((s->flags & SYSV_LOCKED) != 0)
			(void)CALL3(__NR_shmctl, s->id, SHM_LOCK, 0);
		if ((s->flags & SYSV_REMOVED) != 0)
			(void)fork_must(CALL3(__NR_shmctl, s->id, IPC_RMID, 0),
				"remove System V shared memory");
		act_as(0, 0);
	}
}
