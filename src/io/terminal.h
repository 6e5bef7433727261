/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: io/terminal.h - the user's terminal: raw while a command's terminal is shown on it, as it was before in every other case.
 *
 * One terminal a process. It is restored by terminal_restore(), at exit(3), and when the process dies of its own fault (SIGSEGV,
 * SIGBUS, SIGABRT, SIGFPE, SIGILL); signals that ask it to end are the caller's, who reads them from a signalfd and then exits.
 */
#ifndef CAY_IO_TERMINAL_H
#define CAY_IO_TERMINAL_H

#include "base/attr.h"

/** terminal_raw() - make the terminal @fd raw. Return: 0, -ENOTTY, -errno. */
int terminal_raw(int fd) attr_must_use;

/** terminal_restore() - as it was before terminal_raw(); nothing when it is not raw. Async-signal-safe. */
void terminal_restore(void);

/** terminal_size() - rows and columns of @fd; 24 and 80 when it does not know. */
void terminal_size(int fd, uint16_t *ret_rows, uint16_t *ret_columns);

/** terminal_foreground() - is this process in the foreground of its terminal @fd? */
bool terminal_foreground(int fd);

/** terminal_background() - is @fd this process's terminal, and it in the background, where reading stops it? */
bool terminal_background(int fd);

#endif
