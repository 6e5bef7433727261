/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/devices.h - overlays that get the device numbers (st_dev) of those whose place they take, where programs go on that remember them (a resume, a rewind): SQLite, for one,
 * finds the locks of its own process by them.
 *
 * A file system without a device gets the lowest free number (fs/super.c, get_anon_bdev()), and an overlay one more for each file system that its layers are on. So what is free up to the largest
 * number that is wanted is taken by empty file systems; then whoever holds the old overlay lets it go, and what has come free is taken too; and just its own are free again in the instant in
 * which the new one is made. What it got is looked at, and where somebody else was quicker it is made once more. Where an old number is in use, as in a fork, the new ones are others.
 */
#ifndef CAY_SANDBOX_DEVICES_H
#define CAY_SANDBOX_DEVICES_H

#include "base/attr.h"

#include <jansson.h>

/* What an old keeper gives to cayd, in one message to the socket of this name in the runtime directory: its sandbox and the paths of its overlays, each with a NUL, and a descriptor (O_PATH) for each overlay. cayd gives it to the new keeper with `claim`. */
#define HELD_SOCKET    "held.sock"
#define HELD_MAX       64
#define HELD_TEXT_SIZE 16384U

/** struct devices - zero: nothing is wanted. Numbers are minor ones; the major is 0. */
struct devices {
	struct device_place {
		char *path;             /* of the overlay inside */
		unsigned int own, last; /* its own number, 0 = not claimed; the largest of @files */
		bool right;             /* it has been made, and they have them */
		json_t *files; /* {"path" below it, "number"}: how programs remember them */
	} * places;
	size_t n_places;
	unsigned int up_to;  /* the largest number of all */
	struct placeholder { /* an empty file system that has a number */
		int held;
		unsigned int number;
	} * taken;
	size_t n;
};

/** devices_want() - overlays at @places (array of paths) are to be as programs remember their files: @listed, see sandbox/numbers.h. What none has a file of is left out. */
void devices_want(struct devices *d, const json_t *places, const json_t *listed);

/** devices_want_any() - does the overlay at @place matter? */
bool devices_want_any(const struct devices *d, const char *place);

/**
 * devices_take() - take what is free up to the largest number that is wanted.
 * Context: keeper, in a mount namespace of its own. Some 50 microseconds for each number. Return: 0 or -errno; -E2BIG: too many are free.
 */
int devices_take(struct devices *d) attr_must_use;

/**
 * devices_claim() - the overlay at @place, with number @own, has been let go: take its numbers.
 * @ret_free: its own is taken, or nothing that is remembered is of this overlay. Else the kernel has not done with it yet: try again. Return: as devices_take().
 */
int devices_claim(
	struct devices *d, const char *place, unsigned int own, bool *ret_free) attr_must_use;

/** devices_kept() - has the overlay at @place been claimed? */
bool devices_kept(const struct devices *d, const char *place);

/** devices_give() - free the numbers of the overlay at @place for who is about to make it; nothing for one that was not claimed. @try: 0 the first time. */
void devices_give(struct devices *d, const char *place, unsigned int try);

/**
 * devices_right() - has the new overlay behind @mount, at @place, its numbers?
 * Return: true also when nothing is known. False: another number was free for a moment, and stays taken; devices_give() may be tried again.
 */
bool devices_right(struct devices *d, const char *place, int mount) attr_must_use;

/** devices_all_right() - something was wanted, and all that was has been had. */
bool devices_all_right(const struct devices *d);

/** devices_fini() - let all go. */
void devices_fini(struct devices *d);

#endif
