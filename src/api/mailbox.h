/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: api/mailbox.h - the messages that a sandbox gave to mail servers, in the catalogue; read by cay mail. */
#ifndef CAY_API_MAILBOX_H
#define CAY_API_MAILBOX_H

#include "base/err.h"

#include <jansson.h>

struct sandbox;
struct server;

/** mail_keep() - write a message of a net.mail event down, once; its member "mail" is taken out of @data. Return: 0 or -errno, logged. */
int mail_keep(struct sandbox *sb, uint64_t time_ns, json_t *data) attr_must_use;

/** mail_withdraw() - whoever sent the message of a net.mail event was told in the end that it is not kept. */
void mail_withdraw(struct sandbox *sb, const json_t *data);

/** mail_copy() - @to (id of a sandbox or snapshot) has the messages that @from had got by the end of @epoch. Return: 0 or an error. */
int mail_copy(struct server *srv, const char *from, const char *to, uint64_t epoch,
	struct err *err) attr_must_use;

#endif
