/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: base/ablate.h - switch one defence off, to prove that the attack tests notice.
 *
 * In a normal build ablated() is the constant false and the compiler removes it. Only a build with -Dablation=true looks at
 * CAY_ABLATE=id,id,…; the ids are the rows of defs/defences.def.
 */
#ifndef CAY_BASE_ABLATE_H
#define CAY_BASE_ABLATE_H

#include "base/attr.h"

#ifdef CAY_ABLATION
/** ablated() - is the defence @id switched off for this run? */
bool ablated(const char *id);

/** ablate_environment() - "CAY_ABLATE=…" for a program that is started with an environment of its own, or NULL; owned by the caller. */
char *ablate_environment(void);
#else
static inline bool ablated(attr_unused const char *id)
{
	return false;
}

static inline char *ablate_environment(void)
{
	return NULL;
}
#endif

#endif
