/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gateway/gateway.c - the process: what is read while files can be opened, the jail, the loop.
 *
 * Failure: whatever goes wrong here ends the process. Connections are reset, the listeners stay with the keeper, which starts another gateway when somebody knocks; what this one
 * knew and cayd has written down comes back with the configuration.
 */
#include "gateway/gateway.h"
#include "base/log.h"
#include "base/str.h"
#include "gateway/conn.h"
#include "gateway/control.h"
#include "gateway/jail.h"
#include "gateway/keeper_link.h"
#include "gateway/names.h"
#include "gateway/nameserver.h"
#include "gateway/nearby.h"
#include "gateway/refusals.h"
#include "gateway/resolver.h"
#include "gateway/serve.h"

#include <signal.h>
#include <sys/prctl.h>

static int init(struct gateway *gw, int fds[LINK_SOCKETS])
{
	struct id boot = id_new();
	int rc = keeper_link_start(gw, fds);

	if (rc < 0)
		return rc;
	(void)!str_copy(gw->boot, sizeof(gw->boot), boot.s);
	list_init(&gw->conns);
	waiters_init(&gw->changed);
	fiber_init(gw->loop);
	gw->names = names_new();
	gw->diag_fd = fds[LINK_DIAG];
	gw->routes_fd = nearby_open();
	if (gw->routes_fd < 0)
		return gw->routes_fd;
	control_init(gw);
	rc = serve_init(gw);
	return rc == 0 ? resolver_init(gw) : rc;
}

static int watch(struct gateway *gw, const int fds[LINK_SOCKETS])
{
	int rc = keeper_link_watch(gw);

	if (rc == 0)
		rc = refusals_watch(gw, fds[LINK_LOG]);
	if (rc == 0)
		rc = nameserver_watch(gw, fds[LINK_UDP]);
	return rc < 0 ? rc : conn_listen(gw, fds[LINK_TCP]);
}

int gateway_run(void)
{
	static struct gateway gw;
	int fds[LINK_SOCKETS];
	struct err err = { 0 };
	int rc;

	(void)signal(SIGPIPE, SIG_IGN);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	rc = jail_prepare(uv_version(), &err);
	if (rc == 0) {
		gw.loop = uv_default_loop();
		rc = init(&gw, fds);
	}
	if (rc == 0)
		rc = jail_enter(&err);
	if (rc == 0)
		rc = watch(&gw, fds);
	if (rc < 0) {
		log_error("gateway", "start: %s",
			err.code != ERR_NONE ? err.msg : strerrordesc_np(-rc));
		return 1;
	}
	return uv_run(gw.loop, UV_RUN_DEFAULT);
}
