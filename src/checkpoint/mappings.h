/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: checkpoint/mappings.h - the mappings of a process by rising address: the kernel's text of them (/proc/PID/maps), read and parsed once for all who look at them. */
#ifndef CAY_CHECKPOINT_MAPPINGS_H
#define CAY_CHECKPOINT_MAPPINGS_H

#include "base/buf.h"
#include "codec/proctext.h"

/** struct mappings - all of one process. {0}: none. The names belong to it. */
struct mappings {
	struct proc_map *list;
	size_t n, room;
	struct buf text;
	char **names; /* that are not in the text */
	size_t n_names;
};

/** mappings_read() - fill the empty @ret from the file at @path below @dirfd. Return: 0, -EINVAL for a malformed line, -errno; what programs have named of shared memory is called as an unnamed memory file is; needs mappings_fini() in any case. */
int mappings_read(int dirfd, const char *path, struct mappings *ret) attr_must_use;

/** mappings_name() - have @m keep @name, which was allocated, for as long as it is there. Return: @name. */
const char *mappings_name(struct mappings *m, char *name);

/** mappings_fini() - forget all. */
void mappings_fini(struct mappings *m);

#endif
