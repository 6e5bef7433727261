/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: base/log.h - one line for the operator on standard error. Events are product and live elsewhere (src/events/).
 *
 * CAY_DEBUG=store,keeper (or "all") turns on debug lines of those components. Only programs, routes and loop callbacks log.
 */
#ifndef CAY_BASE_LOG_H
#define CAY_BASE_LOG_H

#include "base/err.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_NOTICE, LOG_INFO, LOG_DEBUG };

/** log_init() - name the program ("cayd"); reads CAY_DEBUG. @program is borrowed for ever. */
void log_init(const char *program);

/** log_debug_on() - is debug output on for @component? */
bool log_debug_on(const char *component);

/** log_line() - "<time> <level> <program>/<component> message". Control bytes become '?'; one call is one line. */
void log_line(enum log_level level, const char *component, const char *fmt, ...) attr_printf(3, 4);

/** log_err() - an error as one line: its message, and what can be done about it. */
void log_err(const char *component, const struct err *err);

#define log_error(component, ...)  log_line(LOG_ERROR, component, __VA_ARGS__)
#define log_warn(component, ...)   log_line(LOG_WARN, component, __VA_ARGS__)
#define log_notice(component, ...) log_line(LOG_NOTICE, component, __VA_ARGS__)
#define log_info(component, ...)   log_line(LOG_INFO, component, __VA_ARGS__)
#define log_debug(component, ...) \
	do { \
		if (log_debug_on(component)) \
			log_line(LOG_DEBUG, component, __VA_ARGS__); \
	} while (0)

#endif
