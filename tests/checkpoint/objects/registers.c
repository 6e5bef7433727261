/* SPDX-License-Identifier: Apache-2.0 */
/* Registers: general, flags, SSE, AVX and AVX-512 where there is that, while a thread computes with them and makes no call. */
#include "object.h"

#define GET_PERMISSION 0x1022 /* arch_prctl(2) */
#define ASK_PERMISSION 0x1023
#define TILES          18

static volatile int checking, running, running_wider;
static uint64_t out[4], wide[4];

static void *compute(void *arg)
{
	uint64_t in[4] = { 0x1111111111111111, 0x2222222222222222, 0x3333333333333333,
		0x4444444444444444 };

	(void)arg;
	__asm__ volatile("mov $0x123456789abcdef0, %%r12\n\t"
			 "mov $0x0fedcba987654321, %%r15\n\t"
			 "vmovdqu (%[in]), %%ymm9\n\t"
			 "movl $1, %[running]\n"
			 "1:\tcmpl $0, %[checking]\n\t"
			 "je 1b\n\t"
			 "mov %%r12, (%[out])\n\t"
			 "mov %%r15, 8(%[out])\n\t"
			 "vmovdqu %%ymm9, (%[wide])\n\t"
			 "vzeroupper\n\t"
			 : [running] "=m"(running)
			 : [in] "r"(in), [checking] "m"(checking), [out] "r"(out), [wide] "r"(wide)
			 : "r12", "r15", "xmm9", "memory", "cc");
	MUST(out[0] == 0x123456789abcdef0 && out[1] == 0x0fedcba987654321);
	MUST(memcmp(wide, in, sizeof(in)) == 0);
	return NULL;
}

/* The upper half of a register of 512 bits, one of those that only AVX-512 has, a mask. */
static void *compute_wider(void *arg)
{
	static uint64_t in[8], got[2][8], mask;

	for (size_t i = 0; i < 8; i++)
		in[i] = 0x0101010101010101 * (i + 1);
	(void)arg;
	__asm__ volatile("vmovdqu64 (%[in]), %%zmm9\n\t"
			 "vmovdqu64 (%[in]), %%zmm29\n\t"
			 "mov $0xa5c3, %%eax\n\t"
			 "kmovw %%eax, %%k3\n\t"
			 "movl $1, %[running]\n"
			 "1:\tcmpl $0, %[checking]\n\t"
			 "je 1b\n\t"
			 "vmovdqu64 %%zmm9, (%[got])\n\t"
			 "vmovdqu64 %%zmm29, 64(%[got])\n\t"
			 "kmovw %%k3, %%eax\n\t"
			 "mov %%rax, (%[mask])\n\t"
			 "vzeroupper\n\t"
			 : [running] "=m"(running_wider)
			 : [in] "r"(in), [checking] "m"(checking), [got] "r"(got), [mask] "r"(&mask)
			 : "rax", "xmm9", "memory", "cc");
	MUST(memcmp(got[0], in, sizeof(in)) == 0 && memcmp(got[1], in, sizeof(in)) == 0);
	MUST((mask & 0xffff) == 0xa5c3);
	return NULL;
}

int main(void)
{
	bool wider = __builtin_cpu_supports("avx512f");
	pthread_t thread, second;
	uint64_t before = 0, after = 0;

	/* states that belong to who has asked for them, where the processor has some */
	(void)syscall(SYS_arch_prctl, ASK_PERMISSION, TILES);
	(void)syscall(SYS_arch_prctl, GET_PERMISSION, &before);
	MUST(__builtin_cpu_supports("avx"));
	MUST(pthread_create(&thread, NULL, compute, NULL) == 0);
	if (wider)
		MUST(pthread_create(&second, NULL, compute_wider, NULL) == 0);
	while (!running || (wider && !running_wider))
		(void)sched_yield();
	object_ready();
	checking = 1;
	MUST(pthread_join(thread, NULL) == 0);
	if (wider)
		MUST(pthread_join(second, NULL) == 0);
	(void)syscall(SYS_arch_prctl, GET_PERMISSION, &after);
	MUST(before == after);
	return object_done();
}
