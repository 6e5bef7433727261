/* SPDX-License-Identifier: Apache-2.0 */
#include "base/credential.h"
#include "base/str.h"
#include "t.h"

TEST(places_of_credentials)
{
	static const char *const secret[] = { "/root/.ssh", "/home/u/.ssh/keys", "/home/u/.aws",
		"/home/u/.config/gcloud", "/x/.kube/config", "/home/u/.netrc", "/home/u/.docker",
		"/home/u/.gnupg", "/", "/home", "/etc", "/var/lib", "/run" };
	static const char *const harmless[] = { "/home/u/.nvm", "/home/u/.sshfs", "/home/u/.config",
		"/home/u/ssh", "/home/u/.local/bin", "/home/u/.cargo/bin", "/usr",
		"/etc/alternatives", "/var/www", "/root/.cargo/bin" };

	for (size_t i = 0; i < ARRAY_SIZE(secret); i++) {
		if (credential_place(secret[i]) == NULL)
			t_fail("%s is not refused", secret[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(harmless); i++) {
		if (credential_place(harmless[i]) != NULL)
			t_fail("%s is refused", harmless[i]);
	}
}
