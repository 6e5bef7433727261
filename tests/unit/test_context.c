/* SPDX-License-Identifier: Apache-2.0 */
#include "t.h"
#include "io/context.h"

#include <fenv.h>
#include <stdarg.h>
#include <sys/mman.h>

#define STACK_SIZE (64U * 1024)

static struct context outside, inside;
static int steps;
static char text[64];

/* A stack with an unreachable page below it, as every fiber has. */
static char *stack_new(void)
{
	char *all = mmap(NULL, STACK_SIZE + 4096, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

	if (all == MAP_FAILED || mprotect(all, 4096, PROT_NONE) < 0)
		abort();
	return all + 4096;
}

static void stack_free(char *stack)
{
	(void)munmap(stack - 4096, STACK_SIZE + 4096);
}

static void begin(void (*entry)(void), char *stack)
{
	steps = 0;
	context_init(&inside, stack, STACK_SIZE, entry);
	context_switch(&outside, &inside);
}

static void count(void)
{
	for (;;) {
		steps++;
		context_switch(&inside, &outside);
	}
}

TEST(goes_there_and_back)
{
	char *stack = stack_new();

	begin(count, stack);
	check_int(steps, 1);
	for (int i = 0; i < 100000; i++)
		context_switch(&outside, &inside);
	check_int(steps, 100001);
	stack_free(stack);
}

/* More values than a machine has registers, all alive across each switch, on both sides. */
static uint64_t mix(uint64_t seed, struct context *from, struct context *to)
{
	uint64_t a = seed, b = seed * 3, c = seed * 5, d = seed * 7, e = seed * 11, f = seed * 13,
		 g = seed * 17, h = seed * 19;
	double x = (double)seed, y = x * 2, z = x * 3;

	for (int i = 0; i < 1000; i++) {
		context_switch(from, to);
		a += b ^ (uint64_t)i;
		b += c;
		c ^= d + 1;
		d += e;
		e ^= f + 2;
		f += g;
		g ^= h + 3;
		h += a;
		x += y / 3;
		y += z / 5;
		z += 1;
	}
	return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ (uint64_t)(x + y + z);
}

static uint64_t mixed;

static void mix_inside(void)
{
	mixed = mix(2, &inside, &outside);
	count();
}

TEST(registers_are_each_sides_own)
{
	char *stack = stack_new();
	uint64_t one, two;

	/* what is right: with a partner that touches nothing */
	begin(count, stack);
	one = mix(1, &outside, &inside);
	two = mix(2, &outside, &inside);
	stack_free(stack);
	stack = stack_new();
	begin(mix_inside, stack);
	check(mix(1, &outside, &inside) == one);
	context_switch(&outside, &inside);
	check(mixed == two);
	stack_free(stack);
}

static void round_up(void)
{
	check_int(fegetround(), FE_DOWNWARD);
	(void)fesetround(FE_UPWARD);
	context_switch(&inside, &outside);
	check_int(fegetround(), FE_UPWARD);
	count();
}

TEST(the_rounding_of_floating_point_is_each_sides_own)
{
	char *stack = stack_new();

	(void)fesetround(FE_DOWNWARD); /* a new context has what its maker had */
	begin(round_up, stack);
	check_int(fegetround(), FE_DOWNWARD);
	(void)fesetround(FE_TONEAREST);
	context_switch(&outside, &inside);
	check_int(fegetround(), FE_TONEAREST);
	stack_free(stack);
}

/* Variable arguments with floating point use aligned stores: they break on a stack that is not aligned as the machine wants it. */
static void print(void)
{
	struct {
		_Alignas(16) char bytes[16];
	} aligned;

	check_int((uintptr_t)&aligned % 16, 0);
	(void)snprintf(text, sizeof(text), "%.3f %d %.1f", 1.5, 42, -2.25);
	count();
}

TEST(the_stack_is_aligned)
{
	char *stack = stack_new();

	begin(print, stack);
	check_str(text, "1.500 42 -2.2");
	stack_free(stack);
}

/* Every page of a stack, and then one more. */
static int overrun(volatile char *above, int n)
{
	volatile char here[1024];

	here[0] = *above;
	return n == 0 ? here[0] : overrun(here, n - 1) + here[0];
}

static void overflow(void)
{
	volatile char first = 1;

	(void)overrun(&first, STACK_SIZE / 1024 + 1);
	context_switch(&inside, &outside);
	abort();
}

TEST(the_guard_page_ends_a_stack)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		char *stack;

		(void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
		(void)close(STDERR_FILENO);
		stack = stack_new();
		begin(overflow, stack);
		_exit(0);
	}
	check(waitpid(pid, &status, 0) == pid);
#ifdef CONTEXT_ASAN
	check(!WIFEXITED(status) ||
		WEXITSTATUS(status) != 0); /* it reports the fault in its own way */
#else
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
#endif
}
