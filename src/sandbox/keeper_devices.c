/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/keeper_devices.c - how overlays keep their device numbers (sandbox/devices.h): the old keeper gives them to cayd to be held (`hold`), cayd gives them to the new one (`claim`, before `start`), which lets them go
 * and takes their numbers.
 */
#include "base/log.h"
#include "base/str.h"
#include "sandbox/carry.h"
#include "sandbox/keeper.h"
#include "sys/fdpass.h"
#include "sys/mountinfo.h"
#include "sys/raw.h"
#include "sys/urgency.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define TRIES 20 /* a millisecond each */

/* --- holding --- */

struct holding {
	int root; /* the sandbox's */
	char text[HELD_TEXT_SIZE];
	size_t size;
	int fds[HELD_MAX];
	size_t n;
};

static int hold_one(void *ctx, const struct mountinfo *m)
{
	struct holding *h = ctx;
	size_t size = strlen(m->point) + 1;
	int fd;

	if (!str_eq(m->type, "overlay") || h->n == HELD_MAX || size > sizeof(h->text) - h->size)
		return 0;
	fd = raw_openat2(h->root, m->point[1] != '\0' ? m->point + 1 : ".", O_PATH | O_DIRECTORY, 0,
		RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	if (fd < 0)
		return 0;
	memcpy(h->text + h->size, m->point, size);
	h->size += size;
	h->fds[h->n++] = fd;
	return 0;
}

/* Nobody inside can mount anything; who moves directories meanwhile has something else found, which is let go like all. */
static int hold(const struct keeper *k, struct holding *h)
{
	char path[PATH_MAX];
	cleanup_fd int root = -1, sock = -1;
	int rc;

	(void)snprintf(path, sizeof(path), "/proc/%d/root", k->box.init_pid);
	h->root = root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	(void)snprintf(path, sizeof(path), "/proc/%d/mountinfo", k->box.init_pid);
	h->size = strlen(k->id) + 1;
	memcpy(h->text, k->id, h->size);
	rc = root < 0 ? -errno : mountinfo_each(path, hold_one, h);
	if (rc < 0 || h->n == 0)
		return rc;
	(void)snprintf(path, sizeof(path), "%s/" HELD_SOCKET, k->config.run);
	sock = fdpass_connect(path);
	return sock < 0 ? sock : fdpass_send(sock, h->text, h->size, h->fds, h->n);
}

void keeper_verb_hold(
	struct keeper *k, struct conn *c, json_int_t id, attr_unused const json_t *request)
{
	cleanup_free struct holding *h = xnew(struct holding);
	bool needless = k->capture.pid != 0 && !k->capture_numbered;
	struct err err = { 0 };
	int rc = needless || k->box.init_gone ? 0 : hold(k, h);

	for (size_t i = 0; i < h->n; i++)
		(void)close(h->fds[i]);
	if (rc < 0)
		(void)err_raise_sys(&err, rc, "have the mounts of sandbox '%s' held", k->id);
	if (err.code == ERR_NONE)
		keeper_reply(c, id, NULL);
	else
		keeper_reply_error(c, id, &err);
}

/* --- claiming --- */

static int claim_one(struct keeper *k, const char *place, int *held)
{
	struct devices *d = &k->box.rootfs.devices;
	struct stat st;
	bool is_free = false;
	int rc = fstat(*held, &st) < 0 ? -errno : 0;

	fd_close(held);
	/* its processes have ended; the kernel may take a moment longer to let their mounts go */
	for (int tries = TRIES; rc == 0 && !is_free && tries > 0; tries--) {
		rc = devices_claim(d, place, minor(st.st_dev), &is_free);
		if (rc == 0 && !is_free)
			(void)poll(NULL, 0, 1);
	}
	return rc;
}

/* What is free before belongs to nobody, what comes free when one is let go to that one. */
static int claim_all(struct keeper *k, const json_t *places, int *held, size_t n)
{
	struct devices *d = &k->box.rootfs.devices;
	int rc = d->n_places == 0 ? 0 : devices_take(d);

	for (size_t i = 0; rc == 0 && i < n; i++) {
		const char *place = json_string_value(json_array_get(places, i));

		if (place != NULL && devices_want_any(d, place))
			rc = claim_one(k, place, &held[i]);
	}
	return rc;
}

/* Kept for the start: by then cayd holds nothing any more. */
void keeper_verb_claim(
	struct keeper *k, struct conn *c, attr_unused json_int_t id, const json_t *request)
{
	if (k->state != KEEPER_READY || k->claim != NULL)
		return;
	k->claim = json_deep_copy(request);
	memcpy(k->claim_fds, c->fds, sizeof(c->fds));
	k->n_claim_fds = c->n_fds;
	c->n_fds = 0;
}

static int take_claim(struct keeper *k, const json_t *request)
{
	const json_t *places = json_object_get(request, "places");
	struct err err;
	const char *template = keeper_template_of(request, &err);
	cleanup_buf struct buf state = BUF_INIT(0);
	json_t *listed;
	int rc;

	if (template == NULL || keeper_read_state(k, template, &state, &err) < 0)
		return -EINVAL;
	listed = carry_numbers(&state);
	devices_want(&k->box.rootfs.devices, places, listed);
	json_decref(listed);
	/* who waits for a processor meanwhile finds numbers gone */
	urgency_set(true);
	rc = claim_all(k, places, k->claim_fds, k->n_claim_fds);
	urgency_set(false);
	return rc;
}

void keeper_take_claim(struct keeper *k, const struct conn *c)
{
	struct pollfd p = { .fd = k->listen_fd, .events = POLLIN };
	int rc;

	while (poll(&p, 1, 0) == 1)
		keeper_accept(k);
	keeper_conns_read(k, c);
	rc = k->claim != NULL ? take_claim(k, k->claim) : 0;
	if (rc < 0) {
		log_warn("keeper", "files get other device numbers: %s", strerrordesc_np(-rc));
		devices_fini(&k->box.rootfs.devices);
	}
	for (size_t i = 0; i < k->n_claim_fds; i++)
		fd_close(&k->claim_fds[i]);
	k->n_claim_fds = 0;
	json_decref(TAKE_PTR(k->claim));
}
