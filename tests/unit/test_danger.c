/* SPDX-License-Identifier: Apache-2.0 */
#include "store/danger.h"
#include "t.h"

TEST(what_is_harmless_is_not_named)
{
	static const char *const harmless[] = { "src/main.c", "README.md", "git/hooks",
		"hooks/pre-commit", "my.git/config", "a.gitmodules", "docs/agents.md.txt",
		"vscode/settings.json", "profile", "config/fish", ".git/refs/heads/rebase-merge",
		"model.pth", "yarn.lock", ".yarn/cache/x.zip", "gradle.properties",
		"rust/toolchain.c", "docker/config.json" };

	for (size_t i = 0; i < ARRAY_SIZE(harmless); i++)
		check(danger_path(harmless[i]) == NULL);
}

TEST(what_tools_obey_is_named_at_any_depth_and_in_any_case)
{
	static const char *const bad[] = { ".git/hooks/pre-commit", "sub/dir/.git/hooks/x/y",
		".git/config", ".GIT/Config", "a/.git/modules/m/config", ".git", "vendor/.git",
		"AGENTS.md", "pkg/claude.md", ".cursor/rules/x.mdc", ".github/workflows/ci.yml",
		".vscode/tasks.json", "x.code-workspace", ".envrc", "home/.bashrc", ".npmrc",
		"sitecustomize.py", ".clinerules-code", "Makefile.d/../.ssh/config",
		".git/rebase-merge/git-rebase-todo", ".git/refs/replace/x", ".git/info/exclude",
		".git/worktrees/x/rebase-merge/git-rebase-todo", ".hg/hgrc", ".jj/repo/config.toml",
		"lefthook.toml", ".lefthook/pre-commit/x", ".devcontainer.json",
		"x.sublime-project", ".helix/languages.toml", ".zed/tasks.json",
		"sub/rust-toolchain.toml", ".forgejo/workflows/ci.yml", ".woodpecker.yaml",
		"azure-pipelines-nightly.yml", ".yarn/releases/yarn-4.cjs", ".pnp.cjs",
		".pnpmfile.mjs", ".venv/lib/python3.13/site-packages/x.pth", ".Rprofile",
		"gradle/wrapper/gradle-wrapper.properties", ".config/git/config", ".tmux.conf",
		".docker/config.json", ".opencode/agent/x.md", ".kiro/hooks/x.json" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		check(danger_path(bad[i]) != NULL);
}

static const char *of(const char *path, mode_t before, mode_t after, enum change_kind kind)
{
	const struct found b = { .kind = before != 0 ? FOUND_FILE : FOUND_NONE,
		.dir = -1,
		.st = { .st_mode = before } };
	const struct found a = {
		.kind = after != 0 ? FOUND_FILE : FOUND_NONE, .dir = -1, .st = { .st_mode = after }
	};
	const struct change change = { .kind = kind, .path = path, .before = &b, .after = &a };

	return danger_change(&change, "");
}

TEST(modes_tell_too)
{
	check(of("tool", 0, S_IFREG | 0755, CHANGE_ADDED) != NULL);
	check(of("tool", S_IFREG | 0644, S_IFREG | 0744, CHANGE_METADATA) != NULL);
	check(of("tool", S_IFREG | 0755, S_IFREG | 0755, CHANGE_MODIFIED) == NULL);
	check(of("tool", S_IFREG | 0755, S_IFREG | 04755, CHANGE_METADATA) != NULL);
	check(of("data", 0, S_IFREG | 0644, CHANGE_ADDED) == NULL);
	check(of("AGENTS.md", S_IFREG | 0644, 0, CHANGE_DELETED) == NULL);
}

static bool link_is_named(const char *path, const char *target)
{
	char dir[] = "/tmp/cay-danger-XXXXXX";
	const struct found b = { .kind = FOUND_NONE, .dir = -1 };
	struct found a = {
		.kind = FOUND_FILE, .name = "link", .st = { .st_mode = S_IFLNK | 0777 }
	};
	const struct change change = {
		.kind = CHANGE_ADDED, .path = path, .before = &b, .after = &a
	};
	const char *why;

	check(mkdtemp(dir) != NULL);
	a.dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	check(symlinkat(target, a.dir, "link") == 0);
	why = danger_change(&change, "");
	check(unlinkat(a.dir, "link", 0) == 0 && close(a.dir) == 0 && rmdir(dir) == 0);
	return why != NULL;
}

TEST(links_that_lead_out_are_named_also_by_way_of_other_links)
{
	check(!link_is_named("a", "b"));
	check(!link_is_named("a", "./b/c/"));
	check(!link_is_named("x/y/a", "../../b/c"));
	check(!link_is_named("x/a", "."));
	check(link_is_named("a", "/b"));
	check(link_is_named("a", ".."));
	check(link_is_named("x/y/a", "../../../b"));
	check(link_is_named("x/y/a", "b/../c")); /* b may be a link to the top */
	check(link_is_named("x/y/a", "../b/c/../d"));
}
