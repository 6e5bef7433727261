/* SPDX-License-Identifier: Apache-2.0 */
/* What filters say (checkpoint/filter_run.h) beside what the kernel does: programs that are drawn are installed in a child, which makes calls with arguments that are drawn. */
#include "checkpoint/filter_run.h"
#include "t.h"

#include <linux/audit.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PROGRAMS 400
#define CALLS    16
#define LENGTH   24
#define CALL     SYS_getpmsg /* the kernel has none */
#define REFUSED  0x7fffffff  /* the kernel does not take the program */

static uint64_t draw_state = 88172645463325252ULL;

static uint32_t draw(uint32_t n)
{
	draw_state ^= draw_state << 13;
	draw_state ^= draw_state >> 7;
	draw_state ^= draw_state << 17;
	return (uint32_t)(draw_state >> 33) % n;
}

/* Few values, so that comparisons hit. */
static uint32_t draw_value(void)
{
	static const uint32_t odd[] = { 0, 1, 2, 3, 31, 32, 0x7fffffff, 0x80000000, 0xffffffff };

	return draw(3) == 0 ? odd[draw(ARRAY_SIZE(odd))] : draw(8);
}

static struct sock_filter step_of(unsigned int code, uint32_t k)
{
	return (struct sock_filter)BPF_STMT((uint16_t)code, k);
}

/* One instruction of which @left are to come; mostly one that the kernel takes. */
static struct sock_filter draw_step(unsigned int left)
{
	static const unsigned int alu[] = { BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_AND, BPF_OR,
		BPF_XOR, BPF_LSH, BPF_RSH, BPF_NEG, BPF_MOD },
				  jumps[] = { BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET };
	struct sock_filter f;

	switch (draw(10)) {
	case 0:
	case 1:
		return step_of(BPF_LD | BPF_W | BPF_ABS,
			(uint32_t)offsetof(struct seccomp_data, args) + 4 * draw(13));
	case 2:
		return step_of((draw(2) ? BPF_LD : BPF_LDX) | BPF_W | BPF_IMM, draw_value());
	case 3:
		return step_of((draw(2) ? BPF_LD : BPF_LDX) | BPF_W | BPF_LEN, 0);
	case 4:
		return step_of(draw(2) ? BPF_ST : BPF_STX, draw(BPF_MEMWORDS + 1));
	case 5:
		return step_of((draw(2) ? BPF_LD : BPF_LDX) | BPF_MEM, draw(BPF_MEMWORDS + 1));
	case 6:
		return step_of(BPF_MISC | (draw(2) ? BPF_TAX : BPF_TXA), 0);
	case 7:
	case 8:
		return step_of(BPF_ALU | alu[draw(ARRAY_SIZE(alu))] | (draw(2) ? BPF_X : BPF_K),
			draw_value());
	default:
		f = step_of(BPF_JMP | jumps[draw(ARRAY_SIZE(jumps))] | (draw(2) ? BPF_X : BPF_K),
			draw_value());
		f.jt = (uint8_t)draw(left + 1);
		f.jf = (uint8_t)draw(left + 1);
		return f;
	}
}

/* For CALL alone; ends by an error that tells what it has reckoned. */
static uint32_t draw_program(struct sock_filter *code)
{
	uint32_t n = 0, drawn = 1 + draw(LENGTH);

	code[n++] = step_of(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CALL, 1, 0);
	code[n++] = step_of(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	for (uint32_t m = 0; m < BPF_MEMWORDS; m++)
		code[n++] = step_of(BPF_ST, m);
	for (uint32_t i = 0; i < drawn; i++)
		code[n++] = draw_step(drawn - i);
	code[n++] = step_of(BPF_ALU | BPF_AND | BPF_K, 0x3ff);
	code[n++] = step_of(BPF_ALU | BPF_OR | BPF_K, SECCOMP_RET_ERRNO);
	code[n++] = step_of(BPF_RET | (draw(4) == 0 ? BPF_K : BPF_A),
		draw(2) ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | 1000);
	return n;
}

static uint64_t draw_argument(void)
{
	return (uint64_t)draw_value() << 32 | draw_value();
}

static void make_calls(const struct sock_filter *code, uint32_t n, uint64_t args[CALLS][6], int to)
{
	struct sock_fprog program = { .len = (unsigned short)n,
		.filter = (struct sock_filter *)(uintptr_t)code };
	int32_t said = REFUSED;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		_exit(1);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
		_exit(write(to, &said, sizeof(said)) != sizeof(said));
	for (int i = 0; i < CALLS; i++) {
		const uint64_t *a = args[i];

		said = syscall(CALL, a[0], a[1], a[2], a[3], a[4], a[5]) < 0 ? errno : 0;
		if (write(to, &said, sizeof(said)) != sizeof(said))
			_exit(1);
	}
	_exit(0);
}

/* What the call said, REFUSED, or -1: it was killed for it. */
static int32_t expected(const struct sock_filter *code, uint32_t n, const uint64_t args[6])
{
	struct seccomp_data call = { .nr = CALL, .arch = AUDIT_ARCH_X86_64 };
	uint32_t says;

	memcpy(call.args, args, sizeof(call.args));
	says = filter_run(&(struct filter_program){ code, n }, &call);
	switch (says & SECCOMP_RET_ACTION_FULL) {
	case SECCOMP_RET_ERRNO:
		return (int32_t)(says & SECCOMP_RET_DATA);
	case SECCOMP_RET_ALLOW:
		return ENOSYS;
	default:
		return -1;
	}
}

/* Return: whether the kernel took it. */
static bool compare(const struct sock_filter *code, uint32_t n)
{
	uint64_t args[CALLS][6];
	int32_t said = 0;
	int pair[2];
	pid_t pid;

	for (int i = 0; i < CALLS; i++) {
		for (int j = 0; j < 6; j++)
			args[i][j] = draw_argument();
	}
	check(pipe(pair) == 0);
	pid = fork();
	if (pid == 0)
		make_calls(code, n, args, pair[1]);
	(void)close(pair[1]);
	for (int i = 0; i < CALLS; i++) {
		if (read(pair[0], &said, sizeof(said)) != sizeof(said))
			said = -1;
		if (said == REFUSED)
			break;
		check_int(expected(code, n, args[i]), said);
		if (said < 0)
			break;
	}
	(void)close(pair[0]);
	check_int(waitpid(pid, NULL, 0), pid);
	return said != REFUSED;
}

TEST(as_the_kernel_does)
{
	struct sock_filter code[LENGTH + BPF_MEMWORDS + 8];
	int taken = 0;

	for (int i = 0; i < PROGRAMS; i++)
		taken += compare(code, draw_program(code));
	check(taken > PROGRAMS / 20);
}

TEST(whatever_is_in_it)
{
	struct sock_filter code[LENGTH];
	struct seccomp_data call = { .nr = CALL };

	for (int i = 0; i < 100000; i++) {
		uint32_t n = draw(LENGTH + 1);

		for (uint32_t j = 0; j < n; j++) {
			code[j] = step_of(draw(0x100), draw_value());
			code[j].jt = (uint8_t)draw(4);
			code[j].jf = (uint8_t)draw(4);
		}
		(void)filter_run(&(struct filter_program){ code, n }, &call);
	}
}

TEST(all_of_a_chain_must_allow_it)
{
	const struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
				 log = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_LOG),
				 tell = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
				 no = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1);
	struct filter_program chain[] = { { &allow, 1 }, { &log, 1 }, { &no, 1 }, { &tell, 1 } };
	const struct seccomp_data call = { .nr = CALL };

	check(filter_chain_allows(chain, 0, &call));
	check(filter_chain_allows(chain, 2, &call));
	check(!filter_chain_allows(chain, 3, &call));
	check(!filter_chain_allows(chain + 3, 1, &call));
}

/* Nothing that is said to be refused is let through by any arguments. */
TEST(what_is_refused_whatever_the_arguments_are)
{
	struct sock_filter code[LENGTH + BPF_MEMWORDS + 8];
	int refused = 0, allowed = 0;

	for (int i = 0; i < 100 * PROGRAMS; i++) {
		const struct filter_program f = { code, draw_program(code) };
		bool refuses = filter_refuses(&f, CALL), allows = false;

		for (int j = 0; j < CALLS; j++) {
			struct seccomp_data call = { .nr = CALL, .arch = AUDIT_ARCH_X86_64 };

			for (int k = 0; k < 6; k++)
				call.args[k] = draw_argument();
			allows = allows || filter_chain_allows(&f, 1, &call);
		}
		check(!refuses || !allows);
		refused += refuses;
		allowed += allows;
		check(!filter_refuses(&f, CALL + 1));
	}
	check(refused > PROGRAMS && allowed > PROGRAMS);
}

TEST(what_may_be_let_through)
{
	const struct sock_filter any[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CALL, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 77, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1) };
	struct sock_filter code[ARRAY_SIZE(any)];
	const struct filter_program f = { code, ARRAY_SIZE(code) };
	static const uint32_t lets[] = { SECCOMP_RET_ALLOW, SECCOMP_RET_LOG, SECCOMP_RET_TRACE,
		SECCOMP_RET_USER_NOTIF },
			      does_not[] = { SECCOMP_RET_ERRNO, SECCOMP_RET_TRAP,
				      SECCOMP_RET_KILL_THREAD, SECCOMP_RET_KILL_PROCESS };

	memcpy(code, any, sizeof(code));
	for (size_t i = 0; i < ARRAY_SIZE(lets); i++) {
		code[5].k = lets[i];
		check(!filter_refuses(&f, CALL));
	}
	for (size_t i = 0; i < ARRAY_SIZE(does_not); i++) {
		code[5].k = does_not[i];
		check(filter_refuses(&f, CALL) && !filter_refuses(&f, CALL + 1));
	}
}
