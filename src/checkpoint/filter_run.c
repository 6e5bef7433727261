/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/filter_run.h"

#include <linux/audit.h>
#include <stdlib.h>
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

/* --- whatever the arguments are --- */

/** struct value - one that is the same whatever the arguments are, or not. */
struct value {
	bool known;
	uint32_t is;
};

/** struct state - before an instruction, however it is come to. */
struct state {
	bool reached;
	struct value a, x, memory[BPF_MEMWORDS];
};

static const struct value unknown;

static struct value constant(uint32_t is)
{
	return (struct value){ true, is };
}

static void unite(struct value *a, const struct value *b)
{
	if (!a->known || !b->known || a->is != b->is)
		*a = unknown;
}

static void arrive(struct state *at, const struct state *from)
{
	if (!at->reached) {
		*at = *from;
		return;
	}
	unite(&at->a, &from->a);
	unite(&at->x, &from->x);
	for (size_t i = 0; i < BPF_MEMWORDS; i++)
		unite(&at->memory[i], &from->memory[i]);
}

static struct value load_any(const struct state *s, const struct sock_filter *i, int nr)
{
	switch (BPF_MODE(i->code)) {
	case BPF_IMM:
		return constant(i->k);
	case BPF_LEN:
		return constant(sizeof(struct seccomp_data));
	case BPF_MEM:
		return i->k < BPF_MEMWORDS ? s->memory[i->k] : unknown;
	case BPF_ABS:
		return i->k == offsetof(struct seccomp_data, nr)     ? constant((uint32_t)nr)
		       : i->k == offsetof(struct seccomp_data, arch) ? constant(AUDIT_ARCH_X86_64)
								     : unknown;
	default:
		return unknown;
	}
}

static struct value compute_any(const struct state *s, const struct sock_filter *i)
{
	struct value by = BPF_SRC(i->code) == BPF_X ? s->x : constant(i->k);
	struct machine m = { .a = s->a.is, .x = by.is };

	return s->a.known && by.known && compute(&m, i) ? constant(m.a) : unknown;
}

/* Where it goes on: one or two instructions. Return: how many, those behind the end left out. */
static size_t next_of(
	const struct filter_program *f, const struct state *s, uint32_t at, uint32_t ret[2])
{
	const struct sock_filter *i = &f->code[at];
	struct value than = BPF_SRC(i->code) == BPF_X ? s->x : constant(i->k);
	uint64_t to[2] = { at + 1ULL, at + 1ULL };
	size_t n = 0;

	if (BPF_CLASS(i->code) == BPF_JMP && BPF_OP(i->code) == BPF_JA) {
		to[0] = to[1] = at + 1ULL + i->k;
	} else if (BPF_CLASS(i->code) == BPF_JMP) {
		bool told = s->a.known && than.known,
		     is = told && holds(BPF_OP(i->code), s->a.is, than.is);

		to[0] = at + 1ULL + (told && !is ? i->jf : i->jt);
		to[1] = at + 1ULL + (told && is ? i->jt : i->jf);
	}
	for (size_t j = 0; j < (to[0] == to[1] ? 1 : 2); j++) {
		if (to[j] < f->n)
			ret[n++] = (uint32_t)to[j];
	}
	return n;
}

static void step_any(struct state *s, const struct sock_filter *i, int nr)
{
	switch (BPF_CLASS(i->code)) {
	case BPF_LD:
		s->a = load_any(s, i, nr);
		break;
	case BPF_LDX:
		s->x = load_any(s, i, nr);
		break;
	case BPF_ST:
	case BPF_STX:
		if (i->k < BPF_MEMWORDS)
			s->memory[i->k] = BPF_CLASS(i->code) == BPF_ST ? s->a : s->x;
		break;
	case BPF_ALU:
		s->a = compute_any(s, i);
		break;
	case BPF_MISC:
		if (BPF_MISCOP(i->code) == BPF_TAX)
			s->x = s->a;
		else
			s->a = s->x;
		break;
	default:
		break;
	}
}

static bool is_refusal(const struct state *s, const struct sock_filter *i)
{
	struct value says = BPF_RVAL(i->code) == BPF_A ? s->a : constant(i->k);

	if (!says.known)
		return false;
	switch (says.is & SECCOMP_RET_ACTION_FULL) {
	case SECCOMP_RET_KILL_PROCESS:
	case SECCOMP_RET_KILL_THREAD:
	case SECCOMP_RET_TRAP:
	case SECCOMP_RET_ERRNO:
		return true;
	default:
		return false;
	}
}

bool filter_refuses(const struct filter_program *f, int nr)
{
	struct state *all = calloc((size_t)f->n + 1, sizeof(*all));
	bool refuses = true;

	if (all == NULL)
		abort();
	all[0].reached = true;
	/* nothing jumps back: whoever comes to an instruction has come from before it */
	for (uint32_t at = 0; refuses && at < f->n; at++) {
		const struct sock_filter *i = &f->code[at];
		uint32_t next[2];
		size_t n;

		if (!all[at].reached)
			continue;
		if (BPF_CLASS(i->code) == BPF_RET) {
			refuses = is_refusal(&all[at], i);
			continue;
		}
		n = next_of(f, &all[at], at, next);
		step_any(&all[at], i, nr);
		for (size_t j = 0; j < n; j++)
			arrive(&all[next[j]], &all[at]);
	}
	free(all);
	return refuses;
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
