/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/doctor.h - what this machine offers to sandboxes, what is missing, and how to get it.
 *
 * The report is made where keepers run, with their privilege, by trying things (sys/feature.h) in throw-away processes. It changes nothing.
 * All ids, texts and fixes are rows of defs/kernel.def.
 */
#ifndef CAY_SANDBOX_DOCTOR_H
#define CAY_SANDBOX_DOCTOR_H

#include "base/attr.h"
#include "store/job.h"

/** struct doctor - what the checks need to know; filled by doctor_report(). */
struct doctor {
	const char *state; /* state directory, or its nearest existing parent */
	bool served;       /* its server runs */
	bool root;         /* root mode: keepers run as root of the machine */
	uid_t user;        /* whose server it is, as the machine calls him */
};

/** struct finding - the result of one check. */
struct finding {
	bool ok;
	char found[1000]; /* what is there, for people */
	char fix[700];    /* replaces the fix of the table unless empty */
};

/**
 * finding_set() - fill @f->found and @f->ok.
 * Return: nothing; text that does not fit is cut.
 */
void finding_set(struct finding *f, bool ok, const char *fmt, ...) attr_printf(3, 4);

#define CHECK(NAME, id, level, what, lost, fix) DOCTOR_##NAME,
enum doctor_check {
#include "kernel.def"
	DOCTOR_CHECK_COUNT
};
#undef CHECK

/** doctor_check() - carry out one check of the table's CHECK rows. @d: borrowed; @f: zeroed by the caller, filled. May fork. */
void doctor_check(enum doctor_check check, const struct doctor *d, struct finding *f);

#define DOCTOR_LIMITS 6
#define DOCTOR_UNREAD UINT64_MAX

/** struct doctor_group - the control group above sandboxes that lets them have the fewest processes. */
struct doctor_group {
	uint64_t pids; /* DOCTOR_UNREAD: none of them has a limit */
	char path[512];
};

/** doctor_group_find() - look at @path, a directory of control groups, and all above it. @ret: filled. */
void doctor_group_find(struct doctor_group *ret, const char *path);

/**
 * doctor_limits() - judge limits of the machine that all sandboxes share. Pure.
 * @values: kernel.pid_max, kernel.threads-max, fs.file-max, user.max_user_namespaces, user.max_mnt_namespaces, net.core.bpf_jit_limit; DOCTOR_UNREAD is not judged.
 * @group: of doctor_group_find().
 * @f: filled; the fix raises those that are too low, and no others.
 */
void doctor_limits(
	const uint64_t values[DOCTOR_LIMITS], const struct doctor_group *group, struct finding *f);

/**
 * doctor_report() - try everything and tell.
 * @ret:   `{"mode": "root"|"rootless"|"rootless-single-uid", "ok": bool, "kernel", "state", "withheld": […],
 *         "checks": [{"id", "ok", "level": "required"|"recommended"|"info", "what", "found", "lost", "fix"}]}`, owned by the caller;
 *         `ok` is false when a required check failed; `lost` and `fix` are there in failed checks only.
 * @state: state directory; it need not exist.
 * @user: whose server it is or would be, as the machine calls him.
 * @served: it runs, so that its pool should be there.
 *
 * Context: single-threaded; forks short-lived children; at most a few seconds, normally 20 ms.
 * Return: 0 or -ENOMEM.
 */
int doctor_report(json_t **ret, const char *state, uid_t user, bool served) attr_must_use;

/** doctor_verb() - the job `doctor` {state} -> the report. */
int doctor_verb(struct job *job, json_t **ok, struct err *err) attr_must_use;

/** doctor_main() - print the report to standard output as indented JSON, for `cay doctor` when no server can start. Return: exit status. */
int doctor_main(const char *state) attr_must_use;

#endif
