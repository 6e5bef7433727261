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
	struct image_description out;
};

/** subject_refuse() - this descriptor is @why. Return: negative. */
int subject_refuse(const struct subject *s, struct err *err, const char *why);

/** dump_terminal() - fill s->out for a master or a slave. Return: 1, 0 when it is neither, or an error. */
int dump_terminal(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_socket() - fill s->out for a socket. 0 or an error. */
int dump_socket(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_sockets_end() - after all processes: find which connections are each other's ends. */
void dump_sockets_end(struct dump *d);

#endif
