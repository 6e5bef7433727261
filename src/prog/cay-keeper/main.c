/* SPDX-License-Identifier: Apache-2.0 */
/* cay-keeper: `cay-keeper job ID` does one thing to trees, `cay-keeper doctor STATE` prints what this machine offers; everything else is in src/store and src/sandbox. */
#include "base/log.h"
#include "base/str.h"
#include "sandbox/doctor.h"
#include "store/job.h"

#define CONTROL_FD 3

int main(int argc, char **argv)
{
	log_init("cay-keeper");
	if (argc == 3 && str_eq(argv[1], "doctor"))
		return doctor_main(argv[2]);
	job_add_verb("doctor", doctor_verb);
	if (argc == 3 && str_eq(argv[1], "job"))
		return store_job_main(CONTROL_FD);
	(void)fputs("cay-keeper is started by cayd\n", stderr);
	return 64;
}
