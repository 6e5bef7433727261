/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/temporary.h"
#include "base/attr.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static const char *volatile kept;

static void on_interrupt(int sig)
{
	temporary_remove();
	(void)raise(sig); /* by now it does what it would have done */
}

void temporary_keep(const char *path)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	const struct sigaction action = { .sa_handler = on_interrupt,
		.sa_flags = (int)SA_RESETHAND };
	struct sigaction now;

	kept = path;
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
			(void)sigaction(signals[i], &action, NULL);
	}
}

void temporary_forget(void)
{
	kept = NULL;
}

void temporary_remove(void)
{
	if (kept != NULL)
		(void)unlink(kept);
	kept = NULL;
}
