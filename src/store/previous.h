/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/previous.h - the layer that the last capture by copy of a sandbox made, of which the next one links what did not change.
 *
 * `captured.layer` of the live directory has its id, and in which run of the machine it was made: what is not durable a power cut leaves in part. Whoever finds a layer damaged
 * drops the note of its sandbox, so that the next capture has the sandbox's own bytes.
 */
#ifndef CAY_STORE_PREVIOUS_H
#define CAY_STORE_PREVIOUS_H

#include "base/id.h"
#include "store/store.h"

/**
 * previous_layer() - what may be linked from: its manifest can be read, and it was made since the machine started, or was verified, so is on the disk.
 * @home: the live directory of the sandbox.
 *
 * Return: 0, or -ENOENT: there is none such.
 */
int previous_layer(const struct store *store, int home, char ret[ID_LEN + 1]) attr_must_use;

/**
 * previous_lock() - until @home is closed nobody else changes the note: what is found damaged from now on is found behind what is noted, and drops that.
 * Return: 0 or -errno, -ETIMEDOUT among them.
 */
int previous_lock(int home) attr_must_use;

/** previous_is() - does the note still name @layer, of which something was linked? */
bool previous_is(int home, const char *layer);

/** previous_note() - from now on it is @layer. Only a help: a failure costs time. */
void previous_note(int home, const char *layer);

/** previous_drop() - from now on there is none. */
void previous_drop(int home);

/** previous_spoiled() - @layer is damaged, or may be: nothing is linked any more from what captures of its sandbox made so far, since they have files in common. */
void previous_spoiled(const struct store *store, const char *layer);

#endif
