/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/filter_run.h"
#include "fuzz/fuzz.h"

#include <linux/audit.h>

#define CHAIN_MAX 4U

static bool is_refusal(uint32_t says)
{
	uint32_t action = says & SECCOMP_RET_ACTION_FULL;

	return action == SECCOMP_RET_KILL_PROCESS || action == SECCOMP_RET_KILL_THREAD ||
	       action == SECCOMP_RET_TRAP || action == SECCOMP_RET_ERRNO;
}

/* A call, then instructions: any program, valid or not. What it refuses whatever the arguments are it refuses for these too. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t n = size < sizeof(struct seccomp_data)
			   ? 0
			   : (size - sizeof(struct seccomp_data)) / sizeof(struct sock_filter);
	cleanup_free struct sock_filter *code = xalloc((n + 1) * sizeof(*code));
	struct filter_program chain[CHAIN_MAX];
	struct seccomp_data call;
	uint32_t says;

	if (size < sizeof(call))
		return 0;
	memcpy(&call, data, sizeof(call));
	if (n > 0)
		memcpy(code, data + sizeof(call), n * sizeof(*code));
	for (size_t i = 0; i < CHAIN_MAX; i++)
		chain[i] = (struct filter_program){ code, (uint32_t)n };
	says = filter_run(&chain[0], &call);
	MUST(says == filter_run(&chain[0], &call));
	MUST(!(is_refusal(says) && filter_chain_allows(chain, CHAIN_MAX, &call)));
	call.arch = AUDIT_ARCH_X86_64;
	MUST(!filter_refuses(&chain[0], call.nr) || is_refusal(filter_run(&chain[0], &call)));
	return 0;
}
