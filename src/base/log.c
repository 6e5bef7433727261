/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/clock.h"
#include "base/str.h"

#include <stdarg.h>
#include <string.h>

static const char *program_name = "cay";
static const char *debug_list;

void log_init(const char *program)
{
	program_name = program;
	debug_list = getenv("CAY_DEBUG");
}

bool log_debug_on(const char *component)
{
	return str_list_has(debug_list, component) || str_list_has(debug_list, "all");
}

void log_line(enum log_level level, const char *component, const char *fmt, ...)
{
	static const char *const names[] = { "error", "warn", "notice", "info", "debug" };
	char when[CLOCK_TEXT_SIZE], line[2048];
	va_list ap;
	int head;
	size_t n;

	clock_text(clock_wall_ns(), when);
	head = snprintf(
		line, sizeof(line), "%s %s %s/%s ", when, names[level], program_name, component);
	va_start(ap, fmt);
	(void)vsnprintf(line + head, sizeof(line) - (size_t)head - 1, fmt, ap);
	va_end(ap);
	n = strlen(line);
	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7F)
			line[i] = '?';
	}
	line[n++] = '\n';
	(void)!write(STDERR_FILENO, line, n);
}

void log_err(const char *component, const struct err *err)
{
	log_error(component, "%s%s%s", err->msg, err->hint[0] != '\0' ? "; " : "", err->hint);
}
