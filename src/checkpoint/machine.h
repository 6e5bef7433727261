/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/machine.h - what memory on disk depends on: kernel, vDSO and processor, which it holds code and state of.
 */
#ifndef CAY_CHECKPOINT_MACHINE_H
#define CAY_CHECKPOINT_MACHINE_H

#include "base/err.h"
#include <jansson.h>

/** machine_describe() - {"image": version of the image's format, "kernel": release, "vdso": SHA-256 of its code, "xsave": bytes of register state, "cpu": list of features}. New reference or NULL with @err. */
json_t *machine_describe(struct err *err);

/**
 * machine_check() - can memory that was written on @then go on here? Same format, kernel, vDSO and register state, and no feature of the processor missing.
 * Return: 0, or %ERR_UNSUPPORTED that says what differs.
 */
int machine_check(const json_t *then, struct err *err) attr_must_use;

#endif
