/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/mail.h - the mailbox: a mail server for every name, which takes every message and sends none. */
#ifndef CAY_GATEWAY_MAIL_H
#define CAY_GATEWAY_MAIL_H

#include "gateway/conn.h"

/**
 * mail_serve() - speak SMTP with the client of @c until it leaves.
 * @rule, @index: the mailbox rule that matched; its budgets count messages and their bytes.
 *
 * A message is answered with 250 only when cayd has it in the journal. @c->fd is taken over and set to -1. Context: fiber; waits.
 */
void mail_serve(struct conn *c, const struct policy_rule *rule, size_t index);

#endif
