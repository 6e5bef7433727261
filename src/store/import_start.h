/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/import_start.h - starts cay-import where it can do no harm.
 *
 * It gets user, mount, pid, network, ipc and uts namespaces of its own and three descriptors. In root mode its ids 0..65535 are host ids that nobody
 * else has, and the tree comes through an id-mapped mount, so that what it writes lies on disk unshifted. In rootless mode the ids are those of the job.
 */
#ifndef CAY_STORE_IMPORT_START_H
#define CAY_STORE_IMPORT_START_H

#include "base/err.h"
#include <sys/types.h>

/** struct importer - a started cay-import. */
struct importer {
	pid_t pid;
	int pidfd;
	int socket; /* SOCK_SEQPACKET; 'O' questions and the 'R' report come from it */
};

/** importer_ids() - how many ids an importer will have: 65,536, or what this user namespace has when that is less. */
uint32_t importer_ids(bool rootless);

/**
 * importer_start() - start it.
 * @programs: directory that holds it, or NULL for that of this executable.
 * @request:  its argument, a JSON object (prog/cay-import/main.c).
 * @tree:     empty directory that it fills; borrowed.
 * @archive:  the archive, or -1; borrowed.
 * @rootless: the job is in a user namespace already.
 *
 * Return: 0 or -errno with *@err. Context: a job process, single-threaded, root of its user namespace.
 */
int importer_start(struct importer *importer, const char *programs, const char *request, int tree,
	int archive, bool rootless, struct err *err) attr_must_use;

/** importer_end() - kill it if it still runs, reap it, close the descriptors. Return: its wait status. */
int importer_end(struct importer *importer);

#endif
