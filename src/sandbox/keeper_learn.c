/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/keeper_learn.c - the system call filters of programs, where nobody may read them: the kernel tells of each before it is installed (filter_told()), it is copied, and whoever
 * installs it goes on. A capture is given what is known of those whom it stops.
 *
 * It tells, too, of who makes others the children of somebody else: what filters a process has inherited is told by whose child it is.
 * What is installed may be another one, when somebody writes there meanwhile: it comes above the sandbox's own in any case, and deceives only about the process that does so.
 */
#include "base/str.h"
#include "checkpoint/seizer.h"
#include "codec/proctext.h"
#include "sandbox/filters.h"
#include "sandbox/keeper.h"
#include "sys/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define TEXT_MAX 65536

/* --- threads --- */

/* @folder: of /proc, borrowed. Return: 0 or -errno. */
static int read_thread(const struct keeper *k, int folder, int32_t tid, struct learned_thread *ret)
{
	cleanup_buf struct buf status = BUF_INIT(TEXT_MAX), stat = BUF_INIT(TEXT_MAX);
	struct proc_stat parsed;
	uint64_t filters;
	int rc = file_read_at(folder, "status", &status);

	if (rc == 0)
		rc = file_read_at(folder, "stat", &stat);
	if (rc == 0)
		rc = proc_stat_parse(buf_cstr(&stat), &parsed);
	if (rc < 0)
		return rc;
	filters = proc_number(buf_cstr(&status), "Seccomp_filters", 10, 0);
	*ret = (struct learned_thread){ .tid = tid,
		.process = (int32_t)proc_number(buf_cstr(&status), "Tgid", 10, 0),
		.parent = parsed.ppid,
		.started = parsed.started,
		.n = filters > k->box.filters ? (uint32_t)filters - k->box.filters : 0,
		.threads = (uint32_t)proc_number(buf_cstr(&status), "Threads", 10, 0),
		.traced = proc_number(buf_cstr(&status), "TracerPid", 10, 0) != 0 };
	return 0;
}

static int open_folder(int at, const char *name)
{
	return openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void add_threads(const struct keeper *k, int32_t process, struct buf *all)
{
	char path[40];
	struct learned_thread t;
	const struct dirent *e;
	uint64_t tid;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", process);
	dir = opendir(path);
	while (dir != NULL && (e = readdir(dir)) != NULL) {
		cleanup_fd int folder = -1;

		if (str_to_u64(e->d_name, 1, INT32_MAX, &tid) < 0)
			continue;
		folder = open_folder(dirfd(dir), e->d_name);
		if (folder >= 0 && read_thread(k, folder, (int32_t)tid, &t) == 0)
			buf_add(all, &t, sizeof(t));
	}
	if (dir != NULL)
		(void)closedir(dir);
}

static struct learned_tree tree_of(const struct keeper *k, const struct buf *threads)
{
	return (struct learned_tree){ (const struct learned_thread *)(const void *)threads->p,
		threads->n / sizeof(struct learned_thread), k->box.init_pid };
}

/* Its process and those above it, as far as they are in the sandbox. */
static void add_ancestors(const struct keeper *k, const struct learned_thread *who, struct buf *all)
{
	struct learned_tree tree;
	int32_t process = who->process;

	for (size_t at = 0; process > 1 && process != k->box.init_pid; at = tree.n) {
		add_threads(k, process, all);
		tree = tree_of(k, all);
		if (tree.n == at || buf_failed(all))
			break;
		process = tree.all[tree.n - 1].parent;
	}
}

/* --- as they are installed --- */

static bool lives(int32_t process)
{
	return kill(process, 0) == 0 || errno == EPERM;
}

static int copy(int32_t tid, uint64_t from, void *to, size_t n)
{
	struct iovec local = { to, n }, remote = { (void *)(uintptr_t)from, n };
	ssize_t got = process_vm_readv(tid, &local, 1, &remote, 1, 0);

	return got < 0 ? -errno : (size_t)got == n ? 0 : -EFAULT;
}

/* Return: instructions, 0 when the kernel will refuse it, -errno. */
static int copy_code(int32_t tid, uint64_t program, struct sock_filter code[BPF_MAXINSNS])
{
	struct sock_fprog head;
	int rc = copy(tid, program, &head, sizeof(head));

	if (rc < 0)
		return rc;
	if (head.len == 0 || head.len > BPF_MAXINSNS)
		return 0;
	rc = copy(tid, (uint64_t)(uintptr_t)head.filter, code, head.len * sizeof(*code));
	return rc < 0 ? rc : head.len;
}

static int read_caller(
	const struct keeper *k, const struct seccomp_notif *notice, struct learned_thread *ret)
{
	char path[32];
	cleanup_fd int folder = -1;

	(void)snprintf(path, sizeof(path), "/proc/%u", notice->pid);
	folder = open_folder(AT_FDCWD, path);
	return folder < 0 ? -ESRCH : read_thread(k, folder, (int32_t)notice->pid, ret);
}

/* Would the kernel refuse it if nobody were told of it? */
static bool is_refused(const struct keeper *k, const struct seccomp_notif *notice)
{
	cleanup_buf struct buf threads = BUF_INIT(SEIZED_MAX);
	struct learned_thread who;
	struct learned_tree tree;

	if (!k->learned.hands_on || read_caller(k, notice, &who) < 0)
		return false;
	if (learned_needs_tree(&k->learned, &who))
		add_ancestors(k, &who, &threads);
	tree = tree_of(k, &threads);
	return learned_refuses(&k->learned, &tree, &who, &notice->data);
}

/*
 * What is known of its process, and lasts. A restorer says it itself; others are asked, if @asks, and if their filters refuse it afterwards.
 * Return: false: it is being asked, and not to be answered yet.
 */
static bool find_quiet(struct keeper *k, int listener, const struct seccomp_notif *notice,
	const struct learned_tree *tree, bool asks, struct learned_install *install)
{
	const struct filter_program own = { install->code, install->n };
	struct filter_program chain[LEARNED_CHAIN_MAX + 1];
	int n;
	const bool told = notice->data.args[4] >> 32 == ASKED_TOLD;
	uint32_t quiet = told ? (uint32_t)notice->data.args[4] & ASKED_ALL : 0;
	const bool asked = keeper_asked(k, notice, &quiet);

	/* most refuse nothing that matters, and nobody waits for them to be looked at */
	if (asked_refused(&own, 1) == 0)
		return true;
	n = learned_programs(&k->learned, tree, &install->who, chain);
	if (n < 0)
		return true;
	chain[n] = own;
	if (asks && !asked && !told && keeper_ask(k, listener, notice, install, chain, (uint32_t)n))
		return false;
	if (quiet != 0)
		install->quiet = quiet & asked_lasts(chain, (uint32_t)n + 1);
	return true;
}

/* Return: whether the call is to go on; it will be, later, where @asks. */
static bool learn(struct keeper *k, int listener, const struct seccomp_notif *notice, bool asks)
{
	static struct sock_filter code[BPF_MAXINSNS];
	const bool by_prctl = notice->data.nr == SYS_prctl;
	const uint64_t flags = by_prctl ? 0 : notice->data.args[1], program = notice->data.args[2];
	struct learned_install install = { .all = (flags & SECCOMP_FILTER_FLAG_TSYNC) != 0,
		.log = (flags & SECCOMP_FILTER_FLAG_LOG) != 0,
		.code = code };
	cleanup_buf struct buf threads = BUF_INIT(SEIZED_MAX);
	struct learned_tree tree;
	int n;

	/* a library tries so which flags there are; and a listener there is already */
	if (program == 0 || (flags & SECCOMP_FILTER_FLAG_NEW_LISTENER) != 0)
		return true;
	n = read_caller(k, notice, &install.who) < 0
		    ? -ESRCH
		    : copy_code((int32_t)notice->pid, program, code);
	/* was it still that one? Who is gone installs nothing */
	if (n == 0 || ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &notice->id) < 0)
		return true;
	install.n = n > 0 ? (uint32_t)n : 0;
	if (n < 0) {
		learned_lost(&k->learned, &install.who, install.all);
		return true;
	}
	if (learned_needs_tree(&k->learned, &install.who))
		add_ancestors(k, &install.who, &threads);
	tree = tree_of(k, &threads);
	if (!find_quiet(k, listener, notice, &tree, asks, &install))
		return false;
	learned_add(&k->learned, &install, &tree, lives);
	return true;
}

/* --- what the kernel tells --- */

static void let_go_on(int listener, uint64_t id)
{
	struct seccomp_notif_resp answer = { .id = id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };

	(void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

void keeper_learn_unasked(struct keeper *k, int listener, const struct seccomp_notif *notice)
{
	(void)learn(k, listener, notice, false);
	let_go_on(listener, notice->id);
}

bool keeper_learn(struct keeper *k, int listener, const struct seccomp_notif *notice)
{
	struct seccomp_notif_resp no = { .id = notice->id, .error = -ENOSYS };
	const bool reaps = notice->data.nr == SYS_prctl &&
			   (uint32_t)notice->data.args[0] == PR_SET_CHILD_SUBREAPER;

	if (notice->data.nr == SYS_socket)
		return false;
	if (is_refused(k, notice)) {
		(void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &no);
		return true;
	}
	if (notice->data.nr == SYS_landlock_restrict_self)
		keeper_note_confined(k, listener, notice);
	else if (reaps && notice->data.args[1] != 0)
		learned_adoption(&k->learned);
	else if (!reaps && !learn(k, listener, notice, true))
		return true;
	let_go_on(listener, notice->id);
	return true;
}

/* --- for a capture --- */

/* Where we are told of them and have been told of none there is none. */
static bool is_any(const struct keeper *k)
{
	bool told = false;

	for (size_t i = 0; i < LISTENERS; i++)
		told |= k->told.listeners[i] >= 0;
	return !told || k->learned.n_filters > 0 || k->learned.forgot;
}

int keeper_learned(const struct keeper *k, const struct dump_order *order)
{
	cleanup_buf struct buf all = BUF_INIT(SEIZED_MAX), out = BUF_INIT(SEIZED_MAX);
	cleanup_fd int fd = memfd_create("filters", MFD_CLOEXEC);
	/* who has none needs no looking at */
	uint32_t n = is_any(k) ? order->n_pids : 0;
	struct learned_tree tree;
	int rc;

	if (fd < 0)
		return -errno;
	for (uint32_t i = 0; i < n; i++)
		add_threads(k, order->pids[i], &all);
	tree = tree_of(k, &all);
	learned_write(&k->learned, &tree, &out);
	if (buf_failed(&all) || buf_failed(&out))
		return -E2BIG;
	rc = file_write_all(fd, out.p, out.n);
	return rc < 0 ? rc : TAKE_FD(fd);
}
