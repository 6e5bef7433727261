/* SPDX-License-Identifier: Apache-2.0 */
/* System V: memory (attached twice, in pieces, to be read only, removed but attached, attached by nobody), semaphores, messages; ids, keys, owners, modes. */
#include "object.h"

#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

enum { PAGES = 5, PAGE = 4096, OTHER = 1234 };

struct letter {
	long type;
	char text[16];
};

static struct shmid_ds about(int id)
{
	struct shmid_ds ds;

	MUST(shmctl(id, IPC_STAT, &ds) == 0);
	return ds;
}

static unsigned char *attach(int id, int flags)
{
	unsigned char *p = shmat(id, NULL, flags);

	MUST(p != (void *)-1);
	return p;
}

/* Somebody else's, of a mode that not even its owner may read. */
static int make_others(void)
{
	struct shmid_ds ds;
	int id, status, pipes[2];
	pid_t pid;

	MUST(pipe(pipes) == 0 && (pid = fork()) >= 0);
	if (pid == 0) {
		MUST(setresgid(OTHER, OTHER, OTHER) == 0 && setresuid(OTHER, OTHER, OTHER) == 0);
		id = shmget(0x3333, 100, IPC_CREAT | IPC_EXCL | 0600);
		MUST(id >= 0);
		strcpy((char *)attach(id, 0), "other");
		ds = about(id);
		ds.shm_perm.mode = 0;
		MUST(shmctl(id, IPC_SET, &ds) == 0);
		MUST(write(pipes[1], &id, sizeof(id)) == sizeof(id));
		_exit(0);
	}
	MUST(read(pipes[0], &id, sizeof(id)) == sizeof(id));
	MUST(waitpid(pid, &status, 0) == pid && status == 0);
	return id;
}

static bool unwritable(void *p)
{
	return mprotect(p, PAGE, PROT_READ | PROT_WRITE) < 0 && errno == EACCES;
}

int main(void)
{
	int first = shmget(0x1111, PAGES * PAGE, IPC_CREAT | 0640), gone, lonely, others, set,
	    queue, empty, go[2], back[2], status;
	unsigned char *whole, *again, *read_only, *pieces, *removed;
	unsigned short values[3] = { 0, 7, 32767 };
	struct semid_ds set_about;
	struct msqid_ds queue_about;
	struct letter letter;
	shmatt_t attached;
	pid_t child;
	char c;

	MUST(first >= 0 && shmctl(first, IPC_RMID, NULL) == 0);
	/* not the numbers that a fresh namespace begins with */
	first = shmget(0x1111, PAGES * PAGE, IPC_CREAT | IPC_EXCL | 0640);
	gone = shmget(IPC_PRIVATE, 2 * PAGE, 0600);
	lonely = shmget(0x2222, 10, IPC_CREAT | 0644);
	MUST(first > 0 && gone > 0 && lonely > 0);
	whole = attach(first, 0), again = attach(first, 0), read_only = attach(first, SHM_RDONLY);
	pieces = attach(first, 0), removed = attach(gone, 0);
	MUST(munmap(pieces + PAGE, PAGE) == 0);
	MUST(mprotect(again, PAGE, PROT_READ) == 0);
	for (int i = 0; i < PAGES; i++)
		memset(whole + i * PAGE, 'a' + i, PAGE);
	strcpy((char *)removed, "removed");
	strcpy((char *)attach(lonely, 0), "lonely");
	MUST(shmctl(gone, IPC_RMID, NULL) == 0);
	others = make_others();
	set = semget(0x4444, 3, IPC_CREAT | 0606);
	MUST(set >= 0 && semctl(set, 0, SETALL, values) == 0);
	queue = msgget(0x5555, IPC_CREAT | 0600);
	empty = msgget(IPC_PRIVATE, 0600);
	letter = (struct letter){ 3, "three" };
	MUST(msgsnd(queue, &letter, 6, 0) == 0);
	letter = (struct letter){ 1, "one" };
	MUST(msgsnd(queue, &letter, 4, 0) == 0);
	letter.type = 9;
	MUST(msgsnd(queue, &letter, 0, 0) == 0 && empty >= 0);
	MUST(pipe(go) == 0 && pipe(back) == 0 && (child = fork()) >= 0);
	if (child == 0) {
		/* a relative, which shares it, and waits in the kernel for a semaphore and then for a message */
		struct sembuf down = { .sem_num = 0, .sem_op = -1 };
		int rc;

		do
			rc = semop(set, &down, 1);
		while (rc < 0 && errno == EINTR);
		whole[1] = removed[0];
		MUST(rc == 0 && msgrcv(empty, &letter, 16, 0, 0) == 2);
		MUST(write(back[1], letter.text, 1) == 1);
		_exit(0);
	}

	attached = about(first).shm_nattch;

	object_ready();

	MUST(about(first).shm_nattch == attached && about(first).shm_perm.__key == 0x1111);
	MUST((about(first).shm_perm.mode & 0777) == 0640);
	MUST(shmget(0x1111, 0, 0) == first && shmget(0x2222, 0, 0) == lonely);
	MUST(about(first).shm_segsz == PAGES * PAGE && about(lonely).shm_segsz == 10);
	for (int i = 0; i < PAGES; i++)
		MUST(whole[i * PAGE] == 'a' + i && read_only[i * PAGE + 5] == 'a' + i);
	whole[2 * PAGE] = 'z';
	MUST(again[2 * PAGE] == 'z' && read_only[2 * PAGE] == 'z' && pieces[2 * PAGE] == 'z');
	MUST(unwritable(read_only) && !unwritable(again));
	again[0] = 'y';
	MUST(whole[0] == 'y' && shmdt(again) == 0 && shmdt(pieces) == 0);
	MUST(about(first).shm_nattch == attached - 4);
	MUST(strcmp((char *)removed, "removed") == 0 && about(gone).shm_nattch == 2);
	MUST((about(gone).shm_perm.mode & 01000) != 0);
	MUST(strcmp((char *)attach(lonely, SHM_RDONLY), "lonely") == 0);
	MUST(shmat(others, NULL, 0) == (void *)-1 && errno == EACCES);
	MUST(semctl(set, 2, GETVAL) == 32767 && semctl(set, 1, GETVAL) == 7 &&
		semget(0x4444, 3, 0) == set);
	MUST(semctl(set, 0, IPC_STAT, &set_about) == 0 && (set_about.sem_perm.mode & 0777) == 0606);
	MUST(msgctl(queue, IPC_STAT, &queue_about) == 0 && queue_about.msg_qnum == 3);
	MUST(queue_about.msg_perm.__key == 0x5555 && queue_about.msg_qbytes == 16384);
	MUST(msgrcv(queue, &letter, 16, 1, 0) == 4 && strcmp(letter.text, "one") == 0);
	MUST(msgrcv(queue, &letter, 16, 0, 0) == 6 && letter.type == 3);
	MUST(strcmp(letter.text, "three") == 0);
	MUST(msgrcv(queue, &letter, 16, 0, 0) == 0 && letter.type == 9);
	MUST(semctl(set, 0, SETVAL, 1) == 0);
	letter = (struct letter){ 1, "xy" };
	MUST(msgsnd(empty, &letter, 2, 0) == 0 && read(back[0], &c, 1) == 1 && c == 'x');
	MUST(waitpid(child, &status, 0) == child && status == 0 && whole[1] == 'r');
	MUST(shmdt(removed) == 0 && shmctl(gone, IPC_STAT, &(struct shmid_ds){ 0 }) < 0 &&
		errno == EINVAL);
	return object_done();
}
