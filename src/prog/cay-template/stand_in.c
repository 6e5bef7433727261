/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/stand_in.c - what the kernel notes about who does a thing (SO_PEERCRED, SO_PEERGROUPS, SCM_CREDENTIALS) is right when a process of that number and those
 * ids does it. It shares memory and descriptors with the opener and ends at once, so its number is free again; nobody else of the tree is born yet.
 */
#include "prog/cay-template/fork.h"

#include <linux/sched.h>

#define WALL 0x40000000

/** struct deed - what is to be done by somebody else. */
struct deed {
	long (*act)(void *argument);
	void *argument;
	const struct image_identity *who;
	long result;
};

static char stack[16384] __attribute__((aligned(16)));

/* Its groups are those of the process, if that still is who it was then (SO_PEERGROUPS). */
static struct image_span groups_of(const struct image_identity *who)
{
	const uint64_t n = image->tables[TABLE_PROCESSES].count / sizeof(struct image_process);

	for (uint32_t i = 0; i < n; i++) {
		const struct image_process *p = IMAGE_ROW(struct image_process, TABLE_PROCESSES, i);

		if (p->pid == who->pid && p->uid[1] == who->uid && p->gid[1] == who->gid)
			return p->groups;
	}
	return (struct image_span){ 0 };
}

static BARE_NORETURN __attribute__((used)) void deed_main(struct deed *d)
{
	struct image_span groups = groups_of(d->who);

	/* capabilities stay: SECBIT_NO_SETUID_FIXUP */
	if (fork.order.single_id == 0) {
		(void)CALL2(__NR_setgroups, groups.length / sizeof(uint32_t), image_bytes(groups));
		(void)CALL3(__NR_setresgid, d->who->gid, d->who->gid, d->who->gid);
		(void)CALL3(__NR_setresuid, d->who->uid, d->who->uid, d->who->uid);
	}
	d->result = d->act(d->argument);
	bare_exit(0);
}

static long clone_for(struct deed *d)
{
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;
	struct deed **top = (struct deed **)(stack + sizeof(stack)) - 2;
	long rc;

	*top = d;
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov (%%rsp), %%rdi\n\t"
			 "call deed_main\n\t"
			 "1:"
			 : "=a"(rc)
			 : "a"(__NR_clone), "D"(CLONE_VM | CLONE_FILES | CLONE_VFORK), "S"(top),
			 "d"(0), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return rc;
}

static bool is_somebody_else(const struct image_identity *who)
{
	return who->known != 0 && (who->pid != 0 || who->uid != 0 || who->gid != 0);
}

bool opener_has_deeds(void)
{
	const uint64_t n_packets = image->tables[TABLE_PACKETS].count / sizeof(struct image_packet);
	bool found = false;

	for (uint32_t i = 0; i < plan->n_descriptions && !found; i++)
		found = is_somebody_else(
			&IMAGE_ROW(struct image_description, TABLE_DESCRIPTIONS, i)->other);
	for (uint64_t i = 0; i < n_packets && !found; i++)
		found = is_somebody_else(&IMAGE_ROW(struct image_packet, TABLE_PACKETS, i)->sender);
	return found;
}

long opener_as(const struct image_identity *who, long (*act)(void *argument), void *argument)
{
	struct deed d = { .act = act, .argument = argument, .who = who, .result = -ESRCH };
	long pid;

	if (!is_somebody_else(who))
		return act(argument);
	if (who->pid > 1)
		helper_ask(HELPER_CHOOSE, who->pid);
	pid = fork_must(clone_for(&d), "clone a stand-in");
	(void)CALL4(__NR_wait4, pid, 0, WALL, 0);
	if (fork_shared()->failed != 0)
		bare_exit(125);
	return d.result;
}
