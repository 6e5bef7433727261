/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/spec.h - what a sandbox is asked to be: JSON in, checked values out. Pure.
 *
 * The wire form is in docs/design/0001 ("spec"). Everything from outside is bounded here; later code trusts the values.
 */
#ifndef CAY_SANDBOX_SPEC_H
#define CAY_SANDBOX_SPEC_H

#include "base/err.h"
#include "base/id.h"
#include "policy/policy.h"
#include "sys/cgroup.h"
#include "sys/nft.h"
#include <jansson.h>

/* 32, and 64 that are exposed (defs/openapi.yaml); besides our own: stores of roots, what a fork is told of itself. */
#define SPEC_MOUNTS_MAX 112
#define SPEC_PORTS_MAX  POLICY_PORTS_MAX
#define SPEC_LOWER_MAX  500 /* overlayfs refuses more layers */

enum spec_profile { PROFILE_DEFAULT, PROFILE_STRICT, PROFILE_DEBUG, PROFILE_COUNT };
enum spec_mount_mode { MOUNT_COW, MOUNT_RO, MOUNT_RW };

/** struct spec_layers - absolute directories, top first; owned. */
struct spec_layers {
	char **dirs;
	size_t n;
};

/** struct spec_mount - one host directory inside the sandbox, or a file of its own. */
struct spec_mount {
	char *source; /* absolute path on the host; NULL: @text */
	char *text;   /* what is in the file, read-only */
	char *target; /* absolute, clean path inside */
	enum spec_mount_mode mode;
	struct spec_layers lower; /* cow only: layers above @source */
	bool exposed;             /* shown by `expose`: no place of credentials may be */
	unsigned int tree;        /* cow only: number of its tree in the live directory, from 1 */
};

/** struct spec_ports - ranges of ports, ascending, not touching. */
struct spec_ports {
	struct nft_range ranges[SPEC_PORTS_MAX];
	size_t n;
};

/** struct spec - see the wire form. Zero-initialise; release with spec_fini(). */
struct spec {
	char id[ID_LEN + 1];
	char hostname[NAME_MAX_LEN + 1];
	enum spec_profile profile;
	char *image; /* "host" or an image id */
	struct spec_layers lower;
	struct spec_mount *mounts; /* in the order given; parents must come before children */
	size_t n_mounts;
	struct cgroup_limits limits;
	uint64_t disk_bytes;     /* 0 = no limit */
	uint64_t files;          /* RLIMIT_NOFILE; 0 = default */
	uint32_t slot;           /* which range of host uids */
	struct spec_ports ports; /* to which connections reach the gateway */
};

/**
 * spec_parse() - check @json and fill @spec.
 * @json: borrowed.
 * @spec: filled on success; release with spec_fini() in any case.
 * @err: %ERR_INVALID naming the member.
 */
int spec_parse(const json_t *json, struct spec *spec, struct err *err) attr_must_use;

/** spec_layers_copy() - a copy to be released by spec_layers_fini(). */
struct spec_layers spec_layers_copy(const struct spec_layers *l) attr_must_use;

/** spec_ports_parse() - a JSON list of pairs [first, last], or NULL. Return: 0, or %ERR_INVALID. */
int spec_ports_parse(const json_t *list, struct spec_ports *ret, struct err *err) attr_must_use;

/** spec_layers_fini() - release; zero-initialised is fine. */
void spec_layers_fini(struct spec_layers *l);

/** spec_layers_equal() - the same directories in the same order? */
bool spec_layers_equal(const struct spec_layers *a, const struct spec_layers *b);

/** spec_fini() - release what @spec owns; a zero-initialised one is fine. */
void spec_fini(struct spec *spec);

#endif
