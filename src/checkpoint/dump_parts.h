/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: checkpoint/dump_parts.h - what the files share that look at descriptors. */
#ifndef CAY_CHECKPOINT_DUMP_PARTS_H
#define CAY_CHECKPOINT_DUMP_PARTS_H

#include "checkpoint/dump.h"
#include <limits.h>
#include <sys/stat.h>

/** struct subject - one descriptor while it is looked at. */
struct subject {
	struct dump_process *p;
	int fd;   /* in the process */
	int copy; /* ours, of the same description */
	struct stat st;
	char target[PATH_MAX + 64]; /* of the link in /proc */
	size_t target_n;
	struct buf info; /* fdinfo */
	uint32_t flags;  /* of the description */
	struct image_description out;
};

/** subject_refuse() - this descriptor is @why. Return: negative. */
int subject_refuse(const struct subject *s, struct err *err, const char *why);

/** dump_inotify() - fill s->out for an inotify queue; its watches have no names yet. 0 or an error. */
int dump_inotify(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_terminal() - fill s->out for a master or a slave. Return: 1, 0 when it is neither, or an error. */
int dump_terminal(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** struct owned_lock - a POSIX lock while its process is looked at. */
struct owned_lock {
	struct image_lock lock;
	uint64_t device, inode;
	bool fits; /* the descriptor is open in a way that may take it */
};

/** dump_locks() - those that s->info shows: of the description when it is seen for the first time, and of the process. 0 or an error. */
int dump_locks(
	struct dump *d, struct subject *s, bool description_is_new, struct err *err) attr_must_use;

/** dump_locks_end() - after all descriptors of @p: the locks that it owns. */
void dump_locks_end(struct dump *d, struct dump_process *p);

/** dump_socket() - fill s->out for a socket. 0 or an error. */
int dump_socket(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_sockets_end() - after all processes: find which connections are each other's ends. */
void dump_sockets_end(struct dump *d);

#endif
