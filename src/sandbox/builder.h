/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/builder.h - the process that builds a sandbox's namespaces from inside and then becomes its init.
 *
 * It is PID 1 of the new pid namespace, root of the set-up user namespace U1, and runs our code only. It makes all that does not depend on the
 * root (proc, dev, sys, loopback, the payload's user namespace U2), leaves it below BUILDER_STAGING for the placer (placer.h), and executes cay-init when it is
 * told that nothing will be mounted in U1's name any more. Messages are datagrams of a SOCK_SEQPACKET pair.
 */
#ifndef CAY_SANDBOX_BUILDER_H
#define CAY_SANDBOX_BUILDER_H

#include "base/err.h"
#include "sandbox/network.h"
#include "sandbox/spec.h"

/*
 * The answer when the parts are there is a struct err. When its code is ERR_NONE it comes with a descriptor, namespace U2, and behind it, where this kernel can filter
 * packets, the NETWORK_FDS ones of sandbox/network.h. Behind that the end of the pair says that init is in U2, and another struct err that it could not become init.
 */

/* Where the parts stand until there is a root: `proc`, `dev`, `sys`, and `synth` with the synthetic files. In a mount namespace of the sandbox's own. */
#define BUILDER_STAGING "/sys"

/** struct builder_options - what the keeper decides before the builder starts; copied with the address space. */
struct builder_options {
	int sock;        /* our end of the pair */
	int init_fd;     /* the cay-init program */
	bool single_id;  /* only one id is mapped in U1 (rootless without subordinate ids) */
	bool new_userns; /* U1 was made with this process: wait for its maps, then become its root */
	uint32_t owner;  /* then: made as this id of the host (starter.c) */
	struct cgroup_limits limits; /* what the synthetic files show */
	uint32_t group_level;        /* of the groups of the sandbox's programs: struct cgroup */
};

/** builder_main() - run the builder; never returns. Context: fresh single-threaded child, PID 1 of its namespace. */
void builder_main(const struct builder_options *options) attr_noreturn;

#endif
