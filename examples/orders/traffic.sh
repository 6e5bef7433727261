#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A hundred orders a second from four clients, for $1 seconds, and a line of progress each second.
exec "$(ls /usr/lib/postgresql/*/bin/pgbench | tail -n 1)" -h /var/tmp/orders -n -c 4 -j 2 -M prepared -R 100 -T "$1" -P 1 -f "$(dirname "$0")/order.sql" orders 2>&1
