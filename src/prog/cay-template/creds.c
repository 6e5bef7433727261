/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay-template/creds.c - who the process is. In the order of sandbox/launch.c, for its reasons: filter last but one, capabilities last. */
#include "prog/cay-template/fork.h"

#include <linux/capability.h>
#include <linux/prctl.h>

#define SECCOMP_SET_FILTER 1
#define OURS               0x59414321 /* CONFINE_OURS */

static void set_bounding(uint64_t keep)
{
	for (int cap = 0; CALL5(__NR_prctl, PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++) {
		if ((keep >> cap & 1) == 0)
			(void)fork_must(CALL5(__NR_prctl, PR_CAPBSET_DROP, cap, 0, 0, 0),
				"drop a capability");
	}
}

static void set_ids(const struct image_process *p)
{
	if (fork.order.single_id == 0)
		(void)fork_must(CALL2(__NR_setgroups, p->groups.length / sizeof(uint32_t),
					image_bytes(p->groups)),
			"set the groups");
	(void)fork_must(
		CALL3(__NR_setresgid, p->gid[0], p->gid[1], p->gid[2]), "set the group ids");
	(void)fork_must(CALL3(__NR_setresuid, p->uid[0], p->uid[1], p->uid[2]), "set the user ids");
	(void)CALL1(__NR_setfsgid, p->gid[3]);
	(void)CALL1(__NR_setfsuid, p->uid[3]);
}

static void install_filter(void)
{
	struct {
		uint64_t n;
		uint64_t rules;
	} program = { fork.order.filter_bytes / 8, WINDOW_FILTER };

	(void)fork_must(CALL6(__NR_mmap, WINDOW_FILTER, fork.order.filter_bytes, 1, 2 | 0x100000,
				fork.filter, 0),
		"map the system call filter");
	(void)fork_must(CALL4(__NR_seccomp, SECCOMP_SET_FILTER, 0, &program, OURS),
		"install the system call filter");
}

static void set_capabilities(const struct image_process *p)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct sets[2];

	for (int i = 0; i < 2; i++) {
		sets[i].inheritable = (uint32_t)(p->caps[0] >> (32 * i));
		sets[i].permitted = (uint32_t)(p->caps[1] >> (32 * i));
		sets[i].effective = (uint32_t)(p->caps[2] >> (32 * i));
	}
	(void)fork_must(CALL2(__NR_capset, &header, sets), "give up capabilities");
}

/* What a program without root's privileges has is passed on to what it executes. Behind the ids, whose change ends that. */
static void raise_ambient(uint64_t caps)
{
	for (int cap = 0; cap < 64; cap++) {
		if ((caps >> cap & 1) != 0)
			(void)fork_must(
				CALL5(__NR_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0),
				"keep a capability for what is executed");
	}
}

void creds_leave_keyring(void)
{
	long rc = CALL2(__NR_keyctl, 1 /* JOIN_SESSION_KEYRING */, 0);

	if (rc != -ENOSYS)
		(void)fork_must(rc, "make a session keyring");
}

void creds_become(const struct image_process *p)
{
	set_bounding(p->caps[3]);
	set_ids(p);
	(void)fork_must(CALL5(__NR_prctl, PR_SET_SECUREBITS, p->securebits, 0, 0, 0),
		"set the security bits");
	if (p->filtered != 0)
		install_filter();
	set_capabilities(p);
	raise_ambient(p->caps[4]);
	(void)CALL5(__NR_prctl, PR_SET_DUMPABLE, p->dumpable, 0, 0, 0);
	(void)CALL5(__NR_prctl, PR_SET_PDEATHSIG, p->parent_death_signal, 0, 0, 0);
}
