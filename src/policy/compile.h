/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: policy/compile.h - what a compiled policy is made of; only for src/policy. */
#ifndef CAY_POLICY_COMPILE_H
#define CAY_POLICY_COMPILE_H

#include "policy/match.h"
#include "policy/reader.h"

struct policy {
	unsigned int refs;
	struct policy_rule
		*rules; /* the document's own, then those of its presets in their order */
	size_t n_rules;
	struct policy_secret *secrets;
	size_t n_secrets;
	struct policy_port_range *ports;
	size_t n_ports;
	uint64_t body_max;
};

/** KNOWN() - the members that reader_object() lets an object have. */
#define KNOWN(...) \
	(const char *const[]){ __VA_ARGS__ }, ARRAY_SIZE(((const char *const[]){ __VA_ARGS__ }))

/** compile_host() - for reader_list(): what is wrong with the host pattern @s; NULL when it is right. */
const char *compile_host(const char *s);

/** compile_match() - the member `match` of @rule into @ret, whose action is known. Return: 0 or -EINVAL. */
int compile_match(struct reader *r, const json_t *rule, struct policy_rule *ret) attr_must_use;

/** compile_action() - the members that belong to the action of @ret. Return: 0 or -EINVAL. */
int compile_action(struct reader *r, const json_t *rule, struct policy_rule *ret) attr_must_use;

/** compile_budget() - the budgets in @o (NULL: none), behind those that @ret has. Return: 0 or -EINVAL. */
int compile_budget(struct reader *r, const json_t *o, struct policy_rule *ret) attr_must_use;

#endif
