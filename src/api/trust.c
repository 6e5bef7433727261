/* SPDX-License-Identifier: Apache-2.0 */
#include "api/trust.h"
#include "api/server.h"
#include "base/str.h"
#include "gateway/ca.h"
#include "gateway/jks.h"

#include <fcntl.h>
#include <sys/stat.h>

#define HOST_BUNDLE "/etc/ssl/certs/ca-certificates.crt"
#define BUNDLE_MAX  (8U << 20)
#define INSIDE      "/run/cay/trust" /* where a sandbox finds the directory */

#define FIREFOX_POLICIES "/etc/firefox/policies/policies.json"

enum { STORE_ROOT, STORE_BUNDLE, STORE_JAVA, STORE_CHROMIUM, STORE_FIREFOX, STORE_COUNT };

/*
 * Files, and the places that they are laid over besides. @of: what they are for, of which one is there. Browsers have stores of their own, which their policies add to; nothing is
 * where these would be, so they are there from a sandbox's start or not at all.
 */
static const struct {
	const char *name, *over, *of[2];
} stores[STORE_COUNT] = {
	[STORE_ROOT] = { "ca.pem", NULL, { NULL } },
	[STORE_BUNDLE] = { "bundle.pem", HOST_BUNDLE, { NULL } },
	[STORE_JAVA] = { "cacerts.jks", "/etc/ssl/certs/java/cacerts", { NULL } },
	[STORE_CHROMIUM] = { "chromium.json", "/etc/chromium/policies/managed/cay.json",
		{ "/etc/chromium", "/usr/lib/chromium" } },
	[STORE_FIREFOX] = { "firefox.json", FIREFOX_POLICIES,
		{ "/usr/lib/firefox-esr", "/usr/lib/firefox" } },
};

/* What reads a store of its own, and which. */
static const struct {
	const char *variable, *file;
} variables[] = {
	{ "SSL_CERT_FILE", INSIDE "/bundle.pem" },
	{ "CURL_CA_BUNDLE", INSIDE "/bundle.pem" },
	{ "REQUESTS_CA_BUNDLE", INSIDE "/bundle.pem" },
	{ "PIP_CERT", INSIDE "/bundle.pem" },
	{ "GIT_SSL_CAINFO", INSIDE "/bundle.pem" },
	{ "AWS_CA_BUNDLE", INSIDE "/bundle.pem" },
	{ "CARGO_HTTP_CAINFO", INSIDE "/bundle.pem" },
	{ "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", INSIDE "/bundle.pem" },
	{ "DENO_CERT", INSIDE "/ca.pem" },
	{ "NODE_EXTRA_CA_CERTS", INSIDE "/ca.pem" },
};

/* --- the root --- */

static int make_root(struct sandbox *sb, char **ret_pem, struct err *err)
{
	struct ca_root root;
	cleanup_free char *secret = NULL;
	json_t *part;
	int rc = ca_root_new(&root, sb->id, err);

	if (rc < 0)
		return rc;
	secret = ca_root_pem(&root, true);
	*ret_pem = ca_root_pem(&root, false);
	ca_root_fini(&root);
	if (secret == NULL || *ret_pem == NULL)
		abort();
	part = json_pack("{s:s}", "pem", secret);
	rc = gateway_state_keep(sb->srv, sb->id, "ca", part, err);
	json_decref(part);
	explicit_bzero(secret, strlen(secret));
	return rc;
}

/* The certificate of the sandbox's root; free(). */
static int root_certificate(struct sandbox *sb, char **ret_pem, struct err *err)
{
	json_t *part;
	int rc = gateway_state_part(sb->srv, sb->id, "ca", &part, err);
	const char *pem = json_string_value(json_object_get(part, "pem"));
	struct ca_root root;

	if (rc < 0)
		return rc;
	if (pem == NULL) {
		json_decref(part);
		return make_root(sb, ret_pem, err);
	}
	rc = ca_root_load(&root, pem, strlen(pem), err);
	json_decref(part);
	if (rc < 0)
		return rc;
	*ret_pem = ca_root_pem(&root, false);
	ca_root_fini(&root);
	return *ret_pem != NULL ? 0 : -ENOMEM;
}

/* --- the files --- */

static int write_store(int dir, const char *name, const struct buf *content)
{
	cleanup_fd int fd =
		openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);

	if (fd < 0)
		return -errno;
	for (size_t done = 0; done < content->n;) {
		ssize_t n = write(fd, content->p + done, content->n - done);

		if (n < 0)
			return -errno;
		done += (size_t)n;
	}
	return 0;
}

/* Nothing where there is no such file. */
static void read_host_file(const char *path, struct buf *out)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *to;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > BUNDLE_MAX)
		return;
	to = buf_room(out, (size_t)st.st_size);
	if (to != NULL && read(fd, to, (size_t)st.st_size) == st.st_size)
		buf_grown(out, (size_t)st.st_size);
}

static void write_json(json_t *value, struct buf *out)
{
	cleanup_free char *text = json_dumps(value, JSON_COMPACT);

	if (text == NULL)
		abort();
	buf_str(out, text);
	json_decref(value);
}

/* The certificate as its policies want it: what is between the first line of PEM and the last, in one. */
static void write_chromium(const char *root, struct buf *out)
{
	const char *begin = strchr(root, '\n'),
		   *end = begin == NULL ? NULL : strstr(begin, "-----");
	cleanup_buf struct buf line = BUF_INIT(BUNDLE_MAX);

	for (; end != NULL && begin < end; begin++) {
		if (*begin != '\n')
			buf_add(&line, begin, 1);
	}
	write_json(json_pack("{s:[s]}", "CACertificates", buf_cstr(&line)), out);
}

/* Member @name of @object, which is @fresh where there was none of that kind. */
static json_t *member(json_t *object, const char *name, json_t *fresh)
{
	json_t *there = json_object_get(object, name);

	if (there != NULL && json_typeof(there) == json_typeof(fresh)) {
		json_decref(fresh);
		return there;
	}
	(void)json_object_set_new(object, name, fresh);
	return fresh;
}

/* There is one file for all of them: what the machine's says stays. */
static void write_firefox(struct buf *out)
{
	cleanup_buf struct buf own = BUF_INIT(BUNDLE_MAX);
	json_t *all, *certificates;

	read_host_file(FIREFOX_POLICIES, &own);
	all = own.n > 0 ? json_loadb(own.p, own.n, 0, NULL) : NULL;
	if (!json_is_object(all)) {
		json_decref(all);
		all = json_object();
	}
	certificates =
		member(member(all, "policies", json_object()), "Certificates", json_object());
	(void)json_array_append_new(
		member(certificates, "Install", json_array()), json_string(INSIDE "/ca.pem"));
	write_json(all, out);
}

/* A machine without a bundle gives an empty one: then only what the gateway opens is trusted. What an older version has left is completed. */
static int write_stores(int dir, const char *root)
{
	bool all = faccessat(dir, stores[STORE_ROOT].name, F_OK, 0) < 0;
	struct buf content[STORE_COUNT];
	int rc;

	for (size_t i = 0; i < STORE_COUNT; i++)
		content[i] = (struct buf)BUF_INIT(BUNDLE_MAX * 2);
	buf_str(&content[STORE_ROOT], root);
	read_host_file(HOST_BUNDLE, &content[STORE_BUNDLE]);
	buf_str(&content[STORE_BUNDLE], "\n");
	buf_str(&content[STORE_BUNDLE], root);
	write_chromium(root, &content[STORE_CHROMIUM]);
	write_firefox(&content[STORE_FIREFOX]);
	rc = jks_write(content[STORE_BUNDLE].p, content[STORE_BUNDLE].n, &content[STORE_JAVA]);
	for (size_t i = STORE_COUNT; i-- > 0;) { /* the first one last: when it is there, all are */
		if (rc == 0 && (all || faccessat(dir, stores[i].name, F_OK, 0) < 0))
			rc = write_store(dir, stores[i].name, &content[i]);
		buf_free(&content[i]);
	}
	return rc;
}

static bool has_stores(int dir)
{
	for (size_t i = 0; i < STORE_COUNT; i++) {
		if (faccessat(dir, stores[i].name, F_OK, 0) < 0)
			return false;
	}
	return true;
}

int trust_prepare_place(struct sandbox *sb, struct err *err)
{
	cleanup_free char *path = str_dupf("%s/trust/%s", sb->srv->own_state, sb->id);

	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return err_raise_sys(err, -errno, "make the trust stores of '%s'", sb->name);
	return 0;
}

bool trust_wants_place(const struct sandbox *sb)
{
	return !str_eq(json_string_value(json_object_get(sb->doc, "image")), "host") ||
	       access(HOST_BUNDLE, F_OK) < 0;
}

bool trust_has_place(const struct sandbox *sb)
{
	cleanup_free char *path = str_dupf("%s/trust/%s", sb->srv->own_state, sb->id);

	return access(path, F_OK) == 0;
}

int trust_prepare(struct sandbox *sb, struct err *err)
{
	cleanup_free char *path = str_dupf("%s/trust/%s", sb->srv->own_state, sb->id);
	cleanup_free char *root = NULL;
	cleanup_fd int dir = -1;
	int rc = root_certificate(sb, &root, err);

	if (rc == 0)
		rc = trust_prepare_place(sb, err);
	if (rc < 0)
		return rc;
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_raise_sys(err, -errno, "make the trust stores of '%s'", sb->name);
	if (has_stores(dir))
		return 0;
	rc = write_stores(dir, root);
	return rc < 0 ? err_raise_sys(err, rc, "write the trust stores of '%s'", sb->name) : 0;
}

void trust_mount_place(const struct sandbox *sb, json_t *list)
{
	cleanup_free char *dir = str_dupf("%s/trust/%s", sb->srv->state, sb->id);

	(void)json_array_append_new(
		list, json_pack("{s:s, s:s, s:s}", "source", dir, "target", INSIDE, "mode", "ro"));
}

/* What an image other than this machine's own has nobody knows yet. */
static bool is_wanted(const struct sandbox *sb, size_t i)
{
	return stores[i].over != NULL &&
	       (stores[i].of[0] == NULL ||
		       !str_eq(json_string_value(json_object_get(sb->doc, "image")), "host") ||
		       access(stores[i].of[0], F_OK) == 0 || access(stores[i].of[1], F_OK) == 0);
}

void trust_mounts(const struct sandbox *sb, json_t *list)
{
	cleanup_free char *dir = str_dupf("%s/trust/%s", sb->srv->state, sb->id);

	trust_mount_place(sb, list);
	for (size_t i = 0; i < STORE_COUNT; i++) {
		if (is_wanted(sb, i))
			(void)json_array_append_new(list,
				json_pack("{s:s++, s:s, s:s}", "source", dir, "/", stores[i].name,
					"target", stores[i].over, "mode", "ro"));
	}
}

static bool holds(const json_t *list, const char *text)
{
	const json_t *one;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)list, i, one) {
		if (str_eq(json_string_value(one), text))
			return true;
	}
	return false;
}

int trust_lay(const struct sandbox *sb, struct err *err)
{
	cleanup_free char *dir = str_dupf("%s/trust/%s", sb->srv->state, sb->id);
	json_t *mounts, *request, *ok = NULL;
	bool bundle;
	int rc;

	if (sb->keeper == NULL)
		return err_raise(err, ERR_STATE, "'%s' does not run", sb->name);
	mounts = json_array();
	for (size_t i = 0; i < STORE_COUNT; i++) {
		if (stores[i].over != NULL && stores[i].of[0] == NULL)
			(void)json_array_append_new(
				mounts, json_pack("{s:s++, s:s}", "source", dir, "/",
						stores[i].name, "target", stores[i].over));
	}
	request = json_pack("{s:s, s:O, s:I, s:I, s:b, s:o}", "verb", "lay", "pid",
		json_object_get(sb->doc, "init_pid"), "keeper", (json_int_t)sb->keeper->pid,
		"uid_base", sandbox_uid_base(sb), "rootless", sb->srv->rootless, "mounts", mounts);
	rc = job_run_above(sb->srv, request, &ok, err);
	bundle = holds(json_object_get(ok, "laid"), HOST_BUNDLE);
	json_decref(ok);
	if (rc == 0 && !bundle)
		rc = err_raise(err, ERR_NOT_FOUND, "'%s' has no %s", sb->name, HOST_BUNDLE);
	return rc;
}

void trust_env(json_t *env, bool laid)
{
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		(void)json_object_set_new(env, variables[i].variable,
			json_string(laid ? HOST_BUNDLE : variables[i].file));
}

void trust_forget(const struct server *srv, const char *id)
{
	cleanup_free char *path = str_dupf("%s/trust/%s", srv->own_state, id);
	cleanup_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return;
	for (size_t i = 0; i < STORE_COUNT; i++)
		(void)unlinkat(dir, stores[i].name, 0);
	(void)rmdir(path);
}
