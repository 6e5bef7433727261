/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay-import/import_tree.h - puts the entries of tar streams into one tree.
 *
 * Every name is taken apart here and every parent is opened below the tree with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS, entry by entry: what an earlier
 * entry made cannot lead a later one anywhere. Existing objects are unlinked, never opened, before a new one takes the name.
 *
 * What no honest archive holds ends the import with %ERR_HOSTILE_ARCHIVE: "..", names through a symbolic link or a file, links without
 * target, hard links to nothing, to directories or to symbolic links, malformed whiteouts, too much of anything. What is only useless in a sandbox is left out and
 * counted: device nodes, attributes other than user.*, POSIX ACLs and (where it cannot matter outside) security.capability. Ids above the range become 65534.
 */
#ifndef CAY_IMPORT_TREE_H
#define CAY_IMPORT_TREE_H

#include "base/buf.h"
#include "prog/cay-import/unzip.h"
#include <jansson.h>

#define IMPORT_TREE_DEPTH_MAX   256
#define IMPORT_TREE_DROPPED_MAX 4096 /* device nodes whose names are remembered */

struct import_tree {
	int tree;       /* descriptor of the root directory; borrowed */
	uint32_t ids;   /* users and groups 0..ids-1 exist */
	bool keep_caps; /* security.capability may be kept */
	uint64_t limit_entries, limit_bytes;

	/* what was done */
	uint64_t entries, files, bytes, setuid;
	uint64_t dropped_devices, dropped_xattrs, changed_ids;
	char *devices
		[IMPORT_TREE_DROPPED_MAX]; /* names of dropped nodes, for hard links to them and for the report */
	size_t n_devices;
};

enum import_tree_pass {
	IMPORT_TREE_HIDE, /* check every entry and carry out the whiteouts: they concern only what lies below this layer */
	IMPORT_TREE_WRITE, /* make the entries */
};

/**
 * import_tree_apply() - read a tar stream to its end and apply it.
 * @layer: whiteouts mean something; else they are refused.
 *
 * Return: 0 or -errno with *@err. Context: blocks; whoever calls throws the tree away after a failure.
 */
int import_tree_apply(struct import_tree *root, struct unzip *in, enum import_tree_pass pass,
	bool layer, struct err *err) attr_must_use;

/**
 * import_tree_name() - the clean form of an archive's name, "" for the root itself. An absolute name is one below the tree.
 * Return: 0, or -errno with *@err when it is hostile.
 */
int import_tree_name(const char *raw, struct buf *clean, struct err *err) attr_must_use;

/** import_tree_escape() - @name for a message: control bytes and what is not UTF-8 as \xNN, cut after 200 bytes. */
const char *import_tree_escape(const char *name, struct buf *out);

/** import_tree_report() - counts and dropped names as a JSON object; owned by the caller. */
json_t *import_tree_report(const struct import_tree *root);

/** import_tree_fini() - release what it remembers. */
void import_tree_fini(struct import_tree *root);

#endif
