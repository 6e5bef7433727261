/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of the sanitizers, for programs whose environment is cleaned on the way (linked into sanitized builds only; see make asan). Leaks are not looked
 * for: short-lived programs leave what they hold to the kernel, and the search needs ptrace, which a sandbox's seccomp filter refuses.
 */
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
	return "detect_leaks=0:abort_on_error=1:disable_coredump=1";
}

__attribute__((visibility("default"))) const char *__ubsan_default_options(void)
{
	return "print_stacktrace=1:halt_on_error=1";
}
