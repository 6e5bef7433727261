/* SPDX-License-Identifier: Apache-2.0 */
#include "store/previous.h"
#include "base/str.h"
#include "store/layer.h"
#include "store/verify.h"
#include "sys/boot.h"
#include "sys/file.h"

#define NOTE     "captured.layer"
#define NOTE_MAX 256U

/* "LAYER BOOT". One of an older version has no BOOT. */
static bool parse(const struct buf *note, char layer[ID_LEN + 1], const char **boot)
{
	const char *text = buf_cstr(note), *space = strchr(text, ' ');

	(void)snprintf(layer, ID_LEN + 1, "%s", text);
	*boot = space == NULL ? "" : space + 1;
	return space == text + ID_LEN && id_valid(layer);
}

static bool is_of_this_boot(const char *boot)
{
	cleanup_buf struct buf text = BUF_INIT(NOTE_MAX);
	const char *now = boot_id(&text);

	return now[0] != '\0' && str_eq(now, boot);
}

int previous_layer(const struct store *store, int home, char ret[ID_LEN + 1])
{
	cleanup_buf struct buf note = BUF_INIT(NOTE_MAX);
	json_t *manifest;
	const char *boot;

	if (file_read_at(home, NOTE, &note) < 0 || !parse(&note, ret, &boot) ||
		(!is_of_this_boot(boot) && !verify_has_list(store, ret)))
		return -ENOENT;
	manifest = layer_manifest_read(store, ret, NULL);
	json_decref(manifest);
	return manifest != NULL ? 0 : -ENOENT;
}

int previous_lock(int home)
{
	return file_lock(home, true, STORE_WAIT_MS);
}

bool previous_is(int home, const char *layer)
{
	cleanup_buf struct buf note = BUF_INIT(NOTE_MAX);
	char noted[ID_LEN + 1];
	const char *boot;

	return file_read_at(home, NOTE, &note) == 0 && parse(&note, noted, &boot) &&
	       str_eq(noted, layer);
}

void previous_note(int home, const char *layer)
{
	cleanup_buf struct buf boot = BUF_INIT(NOTE_MAX);
	cleanup_free char *note = str_dupf("%s %s", layer, boot_id(&boot));

	previous_drop(home);
	(void)!file_create_at(home, NOTE, 0600, note, strlen(note));
}

void previous_drop(int home)
{
	(void)unlinkat(home, NOTE, 0);
}

void previous_spoiled(const struct store *store, const char *layer)
{
	json_t *manifest = layer_manifest_read(store, layer, NULL);
	const char *sandbox = json_string_value(json_object_get(manifest, "sandbox"));

	if (sandbox != NULL && id_valid(sandbox)) {
		cleanup_free char *path = str_dupf("live/%s", sandbox);
		cleanup_fd int home = store_dir(store, path);

		/* without the lock, too: a capture that hangs keeps no note of what is damaged */
		if (home >= 0) {
			(void)!previous_lock(home);
			previous_drop(home);
		}
	}
	json_decref(manifest);
}
