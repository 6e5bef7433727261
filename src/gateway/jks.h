/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/jks.h - a Java key store (the format "JKS", version 2) that holds trusted certificates and nothing else.
 *
 * Java's own trust store is read by default from a file of this format with the password "changeit"; source of the format: the OpenJDK's documentation of sun.security.provider.JavaKeyStore.
 */
#ifndef CAY_GATEWAY_JKS_H
#define CAY_GATEWAY_JKS_H

#include "base/buf.h"
#include "gateway/openssl.h"

/** jks_write() - append a store with every certificate of @pem (PEM text), protected by the usual password. Return: 0; -EINVAL when there is none. */
int jks_write(const char *pem, size_t n, struct buf *out) attr_must_use;

#endif
