/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/openssl.h - OpenSSL's headers, with one name out of the way: its ERR_STATE (an opaque type nobody needs) is an error code of ours. */
#ifndef CAY_GATEWAY_OPENSSL_H
#define CAY_GATEWAY_OPENSSL_H

#define ERR_STATE OPENSSL_ERR_STATE
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#undef ERR_STATE

#endif
