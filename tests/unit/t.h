/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: tests/unit/t.h - a unit test in one file: TEST(name) { ... check(x); } and no list to keep.
 *
 * Cases are found by linker section; they know nothing of each other, their order is the compiler's. The output is TAP. A failed check
 * is printed with both values, the case goes on, the program ends with 1. skip("reason") leaves the case. `test_x PART` runs the cases whose name holds PART.
 */
#ifndef CAY_TESTS_UNIT_T_H
#define CAY_TESTS_UNIT_T_H

#include "base/attr.h"
#include "base/clock.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

struct t_case {
	const char *name;
	void (*run)(void);
};

static int t_failed;
static const char *t_skipped;

#define TEST(id) \
	static void t_run_##id(void); \
	static const struct t_case t_case_##id = { #id, t_run_##id }; \
	static const struct t_case *const t_ptr_##id __attribute__((section("t_cases"), used)) = \
		&t_case_##id; \
	static void t_run_##id(void)

#define t_fail(...) \
	do { \
		t_failed++; \
		printf("# %s:%d: ", __FILE__, __LINE__); \
		printf(__VA_ARGS__); \
		printf("\n"); \
	} while (0)

#define skip(reason) \
	do { \
		t_skipped = (reason); \
		return; \
	} while (0)

#define check(cond) \
	do { \
		if (!(cond)) \
			t_fail("%s", #cond); \
	} while (0)

#define check_int(got, want) \
	do { \
		intmax_t t_got = (intmax_t)(got), t_want = (intmax_t)(want); \
		if (t_got != t_want) \
			t_fail("%s is %jd, want %jd", #got, t_got, t_want); \
	} while (0)

#define check_str(got, want) \
	do { \
		const char *t_got = (got), *t_want = (want); \
		if (t_got == NULL || strcmp(t_got, t_want) != 0) \
			t_fail("%s is '%s', want '%s'", #got, t_got != NULL ? t_got : "(null)", \
				t_want); \
	} while (0)

/* The statement must end the process with SIGABRT: a programmer error that is caught, also in release builds. */
#define check_aborts(statement) \
	do { \
		int t_status = 0; \
		pid_t t_pid; \
		(void)fflush(stdout); \
		t_pid = fork(); \
		if (t_pid == 0) { \
			(void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }); \
			(void)close(STDERR_FILENO); \
			statement; \
			_exit(0); \
		} \
		(void)waitpid(t_pid, &t_status, 0); \
		if (!WIFSIGNALED(t_status) || WTERMSIG(t_status) != SIGABRT) \
			t_fail("%s does not abort", #statement); \
	} while (0)

extern const struct t_case *const __start_t_cases[], *const __stop_t_cases[];

int main(int argc, char **argv)
{
	const struct t_case *const *c;
	int n = 0, failures = 0;

	for (c = __start_t_cases; c < __stop_t_cases; c++) {
		uint64_t start = clock_now_ns();

		if (argc > 1 && strstr((*c)->name, argv[1]) == NULL)
			continue;
		t_failed = 0;
		t_skipped = NULL;
		(*c)->run();
		failures += t_failed != 0;
		printf("%sok %d - %s%s%s # time=%.6f\n", t_failed != 0 ? "not " : "", ++n,
			(*c)->name, t_skipped != NULL ? " # SKIP " : "",
			t_skipped != NULL ? t_skipped : "", (double)(clock_now_ns() - start) / 1e9);
		(void)fflush(stdout);
	}
	printf("1..%d\n", n);
	return failures != 0 || n == 0;
}

#endif
