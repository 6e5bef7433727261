#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A PostgreSQL server of its own, without TCP, on a socket in /var/tmp/orders; run as the user postgres.
set -eu
here=$(dirname "$0")
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
at=/var/tmp/orders
mkdir -p "$at"
"$bin/initdb" -D "$at/data" -A trust >"$at/initdb.log"
cat >>"$at/data/postgresql.conf" <<CONFIG
listen_addresses = ''
unix_socket_directories = '$at'
log_lock_waits = on
deadlock_timeout = 10ms
CONFIG
"$bin/pg_ctl" -s -w -D "$at/data" -l "$at/log" start
createdb -h "$at" orders
psql -q -h "$at" -v ON_ERROR_STOP=1 -f "$here/schema.sql" orders
