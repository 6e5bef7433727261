/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: api/nameservers.h - the name servers of this machine: read again now and then, so that gateways that run ask those that there are. */
#ifndef CAY_API_NAMESERVERS_H
#define CAY_API_NAMESERVERS_H

struct server;

/** nameservers_init() - read them. */
void nameservers_init(struct server *srv);

/** nameservers_settle() - where they are others than before, tell all gateways; to be called often. */
void nameservers_settle(struct server *srv);

/** nameservers_csv() - the servers of @text, which is a resolv.conf(5), as "address:port,...". Return: to be freed; NULL when no address is named. */
char *nameservers_csv(const char *text);

#endif
