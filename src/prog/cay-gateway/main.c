/* SPDX-License-Identifier: Apache-2.0 */
/* cay-gateway: the only way out of one sandbox; started by its keeper. */
#include "base/log.h"
#include "gateway/gateway.h"

int main(void)
{
	return gateway_run();
}
