/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-keeper/main.c - `cay-keeper sandbox ID` holds a sandbox, `cay-keeper job ID` does one thing to trees (the socket is descriptor 3 for both; with SEED_NAME for ID it waits to be cloned as either: sys/seed.h),
 * `cay-keeper dump` looks at a stopped sandbox from inside its namespace, `cay-keeper starter` starts programs in a live fork, `cay-keeper doctor STATE` prints what this machine offers. Everything else is in src/sandbox and src/store.
 */
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/dump.h"
#include "checkpoint/memory_job.h"
#include "sandbox/doctor.h"
#include "sandbox/keeper.h"
#include "sandbox/latemount.h"
#include "sandbox/starter.h"
#include "store/job.h"
#include "sys/cgroup.h"
#include "sys/feature.h"
#include "sys/seed.h"

#include <signal.h>

#define CONTROL_FD 3

static const struct job_verb verbs[] = { { "doctor", doctor_verb, false, false, LOCK_NONE },
	{ "lay", latemount_verb, false, false, LOCK_NONE }, MEMORY_VERBS };

int main(int argc, char **argv)
{
	log_init("cay-keeper");
	if (argc == 3 && str_eq(argv[2], SEED_NAME)) {
		/* asked once for all clones: neither changes while a server runs */
		(void)feature_has(FEATURE_OVERLAY_APPEND);
		cgroup_look_ahead();
		seed_wait(CONTROL_FD, argv[2]);
	}
	if (argc == 3 && str_eq(argv[1], "doctor"))
		return doctor_main(argv[2]);
	if (argc == 3 && str_eq(argv[1], "sandbox")) {
		const struct keeper_settings settings = {
			.state = getenv("CAY_STATE"),
			.run = getenv("CAY_RUN"),
			.tag = getenv("CAY_TAG"),
			.mode = getenv("CAY_MODE"),
			.accept_no_limits = getenv("CAY_ACCEPT_NO_LIMITS"),
			.programs = getenv("CAY_PROGRAMS"),
		};

		starter_hide_arguments(argc, argv);
		return keeper_main(argv[2], CONTROL_FD, &settings);
	}
	if (argc == 2 && str_eq(argv[1], "dump"))
		return dump_main();
	if (argc == 2 && str_eq(argv[1], "starter"))
		return starter_main();
	job_add_verbs(verbs, ARRAY_SIZE(verbs));
	if (argc == 3 && str_eq(argv[1], "job"))
		return store_job_main(CONTROL_FD);
	(void)fputs("cay-keeper is started by cayd\n", stderr);
	return 64;
}
