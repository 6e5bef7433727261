/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay-import/import_source.h - where the parts of an image come from: members of a tar, or files of a layout directory.
 *
 * A layout directory belongs to somebody else and is not visible here: its files are asked for, by name, from the process that started us, which
 * opens them below the directory and answers with descriptors. A tar is indexed once; a compressed one is unpacked into an unlinked file first.
 */
#ifndef CAY_IMPORT_SOURCE_H
#define CAY_IMPORT_SOURCE_H

#include "prog/cay-import/unzip.h"
#include <jansson.h>

#define SOURCE_MEMBERS_MAX 10000

enum source_kind { SOURCE_AUTO, SOURCE_OCI, SOURCE_DOCKER, SOURCE_ROOTFS };

/** struct member - one file of an indexed tar. */
struct member {
	char *name; /* clean */
	char *link; /* clean name of the member that it is the same as, or NULL */
	uint64_t offset, size;
};

struct source {
	enum source_kind kind;
	int socket; /* to ask for files of a layout directory; -1 for a tar */
	int file;   /* the tar, plain after source_index(); owned */
	uint64_t limit_bytes;
	struct member *members;
	size_t n_members;
};

/** struct part - an opened part of the image. */
struct part {
	struct blob blob;
	int own; /* descriptor to close, or -1 */
};

/** part_close() - give the descriptor back; half-built ones are fine. */
static inline void part_close(struct part *part)
{
	fd_close(&part->own);
}

#define cleanup_part cleanup(part_close)

/** source_detect() - find out what kind of archive @source->file is when its kind is not given. Return: 0 or -errno with *@err. */
int source_detect(struct source *source, struct err *err) attr_must_use;

/** source_index() - index the members of the tar; @tree: a directory where a compressed one may be unpacked. Return: 0 or -errno with *@err. */
int source_index(struct source *source, int tree, struct err *err) attr_must_use;

/**
 * source_open() - open the part with this name ("index.json", "blobs/sha256/…").
 * Return: 0, or -errno with *@err: %ERR_CORRUPT when it is not there.
 */
int source_open(
	struct source *source, const char *name, struct part *ret, struct err *err) attr_must_use;

/** source_has() - is there a member of this name? Tars only. */
bool source_has(const struct source *source, const char *name);

/**
 * source_document() - read a JSON document.
 * @digest: what its bytes must hash to; "" = anything.
 * @ret_digest: set to "sha256:…" (or the algorithm of @digest) of its bytes; may be NULL.
 *
 * Return: owned by the caller; NULL with *@err.
 */
json_t *source_document(struct source *source, const char *name, const char *digest,
	char ret_digest[REFERENCE_DIGEST_MAX + 1], struct err *err) attr_must_use;

/** source_fini() - release all. */
void source_fini(struct source *source);

#endif
