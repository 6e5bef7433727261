/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: api/past_sandboxes.h - sandboxes that were removed, of which the event log alone knows. */
#ifndef CAY_API_PAST_SANDBOXES_H
#define CAY_API_PAST_SANDBOXES_H

#include "api/server.h"

/**
 * past_sandbox_find() - the one that was called @what, or whose id that is or begins so, as far as its events are still kept.
 * @what: no sandbox that there is.
 *
 * Looks at events of all removed sandboxes. Return: 0 and @id; -ENOENT with %ERR_NOT_FOUND or %ERR_AMBIGUOUS in @err. Context: fiber; waits.
 */
int past_sandbox_find(
	struct server *srv, const char *what, char id[ID_LEN + 1], struct err *err) attr_must_use;

#endif
