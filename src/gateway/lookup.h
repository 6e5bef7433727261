/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/lookup.h - records other than addresses (SRV, TXT, MX) that a rule lets a sandbox look up outside.
 *
 * The question is put anew for the canonical name; of the answer only well-formed records of the asked type are passed on, written anew. Every look-up is told.
 */
#ifndef CAY_GATEWAY_LOOKUP_H
#define CAY_GATEWAY_LOOKUP_H

#include "codec/dns.h"
#include "gateway/gateway.h"

struct owner_search;

/** lookup_record() - what records of @type are called in rules. Return: a static text; NULL of types that no rule can name. */
const char *lookup_record(uint16_t type);

/** lookup_decide() - does a rule of @gw's policy let @q be asked outside? @ret: its verdict. */
bool lookup_decide(const struct gateway *gw, const struct dns_query *q, struct policy_verdict *ret);

/**
 * lookup_answer() - ask, append the answer to @q to @out, and tell it.
 * @policy: whose verdict @v is; the caller holds a reference. @whose: who asked. @limit: bytes of the answer.
 * Context: fiber; waits.
 */
void lookup_answer(struct gateway *gw, const struct dns_query *q, const struct policy *policy,
	const struct policy_verdict *v, struct owner_search *whose, size_t limit, struct buf *out);

#endif
