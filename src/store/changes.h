/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/changes.h - changes as JSON: the Change of defs/openapi.yaml; renames found afterwards; unified text. */
#ifndef CAY_STORE_CHANGES_H
#define CAY_STORE_CHANGES_H

#include "store/diff.h"
#include "store/job.h"
#include "store/textdiff.h"

#define CHANGES_DEFAULT  100000
#define CHANGES_TEXT_MAX (16U << 20)
#define CHANGES_HOLES    (1ULL << 30)

/** struct changes - collected; zero-initialise with CHANGES_INIT, release with changes_free(). */
struct changes {
	json_t *list;   /* array of Change; a removed one is null */
	uint64_t limit; /* more are not kept */
	bool truncated;
	bool hash; /* read every regular file that changed */
	uint64_t
		holes_left; /* so many bytes of holes are hashed; a file that has more gets no hash */
	bool want_text, text_full;
	struct buf text;
	struct textdiff waiting; /* for the text */
	int scratch;             /* directory for it, borrowed; -1: none */
};

#define CHANGES_INIT \
	{ \
		.list = json_array(), .limit = CHANGES_DEFAULT, .hash = true, \
		.holes_left = CHANGES_HOLES, .text = BUF_INIT(CHANGES_TEXT_MAX), .scratch = -1 \
	}

/** changes_add() - append @change of the tree at @target ("/" or an absolute path). Return: 0, 1 when the limit is reached, -errno. */
int changes_add(struct changes *c, const struct change *change, const char *target,
	const struct stack *a, const struct stack *b) attr_must_use;

/** changes_pair_renames() - turn each pair of one deleted and one added file with the same bytes, mode and owner, and no third, into `renamed`. */
void changes_pair_renames(struct changes *c);

/** changes_send_list() - stream the entries of array @list as OBJECT frames with member @name, each with as many as fit. @ret_n: how many. Return: 0 or -errno. */
int changes_send_list(
	struct job *job, const char *name, const json_t *list, json_int_t *ret_n) attr_must_use;

/** changes_send() - stream them as OBJECT frames. @ret_n: how many changes. */
int changes_send(struct changes *c, struct job *job, json_int_t *ret_n) attr_must_use;

/** changes_free() - release; NULL is fine. */
void changes_free(struct changes *c);

/** changes_path() - the JSON members "path" (with U+FFFD for what is no UTF-8) and then also "raw" (hex) of @target/@path, put into @object. */
void changes_path(json_t *object, const char *target, const char *path);

#endif
