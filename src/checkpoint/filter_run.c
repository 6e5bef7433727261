/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/filter_run.h"

#include <string.h>

#define INVALID SECCOMP_RET_KILL_PROCESS

/** struct machine - a program that runs. */
struct machine {
	uint32_t a, x, memory[BPF_MEMWORDS];
	uint32_t at; /* the next instruction */
};

static uint32_t calculate(uint32_t op, uint32_t a, uint32_t by)
{
	switch (op) {
	case BPF_ADD:
		return a + by;
	case BPF_SUB:
		return a - by;
	case BPF_MUL:
		return a * by;
	case BPF_DIV:
		return a / by;
	case BPF_AND:
		return a & by;
	case BPF_OR:
		return a | by;
	case BPF_XOR:
		return a ^ by;
	case BPF_LSH:
		return a << (by & 31);
	case BPF_RSH:
		return a >> (by & 31);
	default: /* BPF_NEG */
		return -a;
	}
}

static bool holds(uint32_t op, uint32_t a, uint32_t than)
{
	switch (op) {
	case BPF_JEQ:
		return a == than;
	case BPF_JGT:
		return a > than;
	case BPF_JGE:
		return a >= than;
	default: /* BPF_JSET */
		return (a & than) != 0;
	}
}

static bool load(struct machine *m, const struct sock_filter *i, const struct seccomp_data *call)
{
	uint32_t value;

	switch (BPF_MODE(i->code)) {
	case BPF_IMM:
		value = i->k;
		break;
	case BPF_LEN:
		value = sizeof(*call);
		break;
	case BPF_MEM:
		if (i->k >= BPF_MEMWORDS)
			return false;
		value = m->memory[i->k];
		break;
	case BPF_ABS:
		if (i->code != (BPF_LD | BPF_W | BPF_ABS) || i->k % 4 != 0 ||
			i->k > sizeof(*call) - 4)
			return false;
		memcpy(&value, (const char *)call + i->k, sizeof(value));
		break;
	default:
		return false;
	}
	*(BPF_CLASS(i->code) == BPF_LD ? &m->a : &m->x) = value;
	return true;
}

static bool store(struct machine *m, const struct sock_filter *i)
{
	if (i->k >= BPF_MEMWORDS)
		return false;
	m->memory[i->k] = BPF_CLASS(i->code) == BPF_ST ? m->a : m->x;
	return true;
}

/* The kernel answers 0, which kills the thread, where somebody divides by 0; no constant may be 0. */
static bool compute(struct machine *m, const struct sock_filter *i)
{
	uint32_t by = BPF_SRC(i->code) == BPF_X ? m->x : i->k, op = BPF_OP(i->code);

	if (op > BPF_XOR || op == BPF_MOD || (op == BPF_DIV && by == 0))
		return false;
	m->a = calculate(op, m->a, by);
	return true;
}

static bool jump(struct machine *m, const struct sock_filter *i, uint32_t n)
{
	uint32_t than = BPF_SRC(i->code) == BPF_X ? m->x : i->k, op = BPF_OP(i->code);
	uint32_t by = op == BPF_JA ? i->k : holds(op, m->a, than) ? i->jt : i->jf;

	if (op > BPF_JSET || by >= n - m->at)
		return false;
	m->at += by;
	return true;
}

static void transfer(struct machine *m, const struct sock_filter *i)
{
	if (BPF_MISCOP(i->code) == BPF_TAX)
		m->x = m->a;
	else
		m->a = m->x;
}

uint32_t filter_run(const struct filter_program *f, const struct seccomp_data *call)
{
	struct machine m = { 0 };

	/* nothing jumps back */
	while (m.at < f->n) {
		const struct sock_filter *i = &f->code[m.at++];
		bool valid = true;

		switch (BPF_CLASS(i->code)) {
		case BPF_LD:
		case BPF_LDX:
			valid = load(&m, i, call);
			break;
		case BPF_ST:
		case BPF_STX:
			valid = store(&m, i);
			break;
		case BPF_ALU:
			valid = compute(&m, i);
			break;
		case BPF_JMP:
			valid = jump(&m, i, f->n);
			break;
		case BPF_RET:
			return BPF_RVAL(i->code) == BPF_A ? m.a : i->k;
		default:
			transfer(&m, i);
		}
		if (!valid)
			return INVALID;
	}
	return INVALID;
}

bool filter_chain_allows(
	const struct filter_program *chain, uint32_t n, const struct seccomp_data *call)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t action = filter_run(&chain[i], call) & SECCOMP_RET_ACTION_FULL;

		if (action != SECCOMP_RET_ALLOW && action != SECCOMP_RET_LOG)
			return false;
	}
	return true;
}
