/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/identity.h - what differs between sandboxes that go on from one instant (docs/live-fork.md): the file /run/cay/generation, and what programs asked to be told with.
 *
 * A program that must not do the same twice (random numbers, ids, locks in other systems) was started with CAY_FORK_HOOK=PROGRAM or CAY_FORK_SIGNAL=NUMBER in its environment: after a live
 * fork or a rewind PROGRAM runs in the sandbox, and has ended, before anybody can send new input to it; then it gets the signal. A sandbox that never went on from an instant has no
 * such file. Memory that fork(2) would wipe (MADV_WIPEONFORK) is empty behind both. `keep_identity` leaves all as it was, for forks that must be exactly alike.
 */
#ifndef CAY_API_IDENTITY_H
#define CAY_API_IDENTITY_H

#include "api/server.h"

#define IDENTITY_FILE "/run/cay/generation" /* inside */

/**
 * identity_choose() - before @sb is started with the processes of a snapshot.
 * @config: of the snapshot. @keep: the generation is that of the snapshot. Otherwise it is one that there never was.
 */
void identity_choose(struct sandbox *sb, const json_t *config, bool keep);

/** identity_mounts() - append the mount of the file to @list, in the form of a keeper's specification. */
void identity_mounts(const struct sandbox *sb, json_t *list);

/** identity_note() - keep in the document of a new exec what its environment asks for. @request: of the exec. 0 or an error: the signal is none. */
int identity_note(const struct sandbox *sb, json_t *doc, const json_t *request,
	struct err *err) attr_must_use;

/** identity_tell() - run the hooks of the execs of @sb, wait for their ends, send the signals. Failures are in the log of events alone. Context: fiber; waits, 10 s at most. */
void identity_tell(struct sandbox *sb);

#endif
