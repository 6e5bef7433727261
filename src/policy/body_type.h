/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: policy/body_type.h - what a body says that it is. Pure. */
#ifndef CAY_POLICY_BODY_TYPE_H
#define CAY_POLICY_BODY_TYPE_H

#include "policy/policy.h"

/** body_may_be_json() - can rules read a body of this Content-Type (empty: of none)? JSON that says to be a form can be one, too; with another charset than UTF-8 it may say something else. */
bool body_may_be_json(struct policy_text type);

#endif
