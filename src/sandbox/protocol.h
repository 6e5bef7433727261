/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/protocol.h - the version of what a server and its keepers say to each other (docs/design/0001).
 *
 * A keeper outlives its server, so the next one may be of another version. Verbs and members that one side does not know are refused or passed over, which is
 * enough for almost all that changes; the number grows where it is not, and who does not know it does not speak to that keeper.
 */
#ifndef CAY_SANDBOX_PROTOCOL_H
#define CAY_SANDBOX_PROTOCOL_H

#define KEEPER_PROTOCOL 1

#endif
