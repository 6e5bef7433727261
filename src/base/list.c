/* SPDX-License-Identifier: Apache-2.0 */
#include "base/list.h"

_Thread_local unsigned list_walks;
