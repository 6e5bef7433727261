/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sys/spawn_request.h - what cayd and cay-spawn say to each other over their SOCK_SEQPACKET pair.
 *
 * Messages of fixed size, one a packet, nothing to parse. A request carries at most one descriptor.
 */
#ifndef CAY_SYS_SPAWN_REQUEST_H
#define CAY_SYS_SPAWN_REQUEST_H

#include "base/attr.h"

#define SPAWN_MAGIC         0x53594143U /* "CAYS" */
#define SPAWN_VERSION       3U
#define SPAWN_ID_SIZE       24
#define SPAWN_STOCK_MIB_MAX 1024U
#define SPAWN_FD            3 /* the socket to cayd in cay-spawn, and the keeper's socket in a keeper */

enum spawn_kind {
	SPAWN_SANDBOX = 1, /* start `cay-keeper sandbox ID`; carries the keeper's socket */
	SPAWN_JOB =
		2, /* start `cay-keeper job ID`; carries the job's socket; may be @beside a keeper */
	SPAWN_TEMPLATE =
		4, /* start `cay-template ID MEBIBYTES`; carries a socket whose other end keeps it alive */
	SPAWN_JOB_ABOVE =
		5, /* as SPAWN_JOB, but rootless in no namespace of its own: it may enter those of all keepers */
	SPAWN_CLEANUP = 3, /* kill whatever is left in the groups of ID and remove them */
};

struct spawn_request {
	uint32_t magic, version;
	uint32_t kind; /* enum spawn_kind */
	int32_t beside; /* rootless job: enter the user namespace of this pid instead of a new one; 0 = none */
	uint32_t stock_mib;     /* template: memory that it makes ahead of time */
	char id[SPAWN_ID_SIZE]; /* NUL-padded */
};

enum spawn_event_kind {
	SPAWN_EVENT_STARTED = 1, /* pid is set */
	SPAWN_EVENT_FAILED = 2,  /* nothing was started; status is a positive errno */
	SPAWN_EVENT_ENDED =
		3, /* reaped (pid, wait status) or cleaned up (pid 0), and the groups are gone */
	SPAWN_EVENT_READY = 4, /* first message: what cay-spawn found; status is a SPAWN_CGROUP_* */
};

enum spawn_cgroup {
	SPAWN_CGROUP_NONE = 0,
	SPAWN_CGROUP_V2 = 1,
	SPAWN_CGROUP_BARE = 2, /* v2, and no controllers in it, nor v1 ones, that hold limits */
};

struct spawn_event {
	uint32_t magic, version;
	uint32_t kind; /* enum spawn_event_kind */
	int32_t pid;
	int32_t status;
	uint32_t uid_map; /* 0 = root mode, 1 = subordinate range, 2 = single uid */
	uint32_t dirty;   /* ENDED: processes were left when the deadline passed */
	uint32_t reserved;
	char id[SPAWN_ID_SIZE];
};

#endif
