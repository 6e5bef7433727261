/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/seizer.h"
#include "fuzz/fuzz.h"
#include "sandbox/learned.h"

#define THREADS   12U
#define CODE_MAX  8U
#define WRITE_MAX (16U << 20)

/** struct input - what is drawn from; all zeros behind its end. */
struct input {
	const uint8_t *at;
	size_t n;
};

static uint8_t draw(struct input *in)
{
	if (in->n == 0)
		return 0;
	in->n--;
	return *in->at++;
}

static bool lives(int32_t process)
{
	return process % 3 != 0;
}

/* Threads of few processes, which are each other's parents in any way; numbers come again with another start. */
static struct learned_thread draw_thread(struct input *in)
{
	uint8_t who = draw(in), more = draw(in);

	return (struct learned_thread){ .tid = 1 + who % 8,
		.process = 1 + (who >> 3) % 4,
		.parent = 1 + (who >> 5),
		.started = more % 3,
		.n = (more >> 2) % 8,
		.threads = 1 + more % 2,
		.traced = more >> 7 != 0 };
}

static struct learned_tree draw_tree(struct input *in, struct learned_thread all[THREADS])
{
	size_t n = draw(in) % (THREADS + 1);

	for (size_t i = 0; i < n; i++)
		all[i] = draw_thread(in);
	return (struct learned_tree){ all, n, 1 };
}

static void add(struct learned *l, struct input *in)
{
	struct learned_thread all[THREADS];
	struct learned_tree tree = draw_tree(in, all);
	struct learned_install install = { .who = draw_thread(in) };
	/* an exact copy on the heap */
	cleanup_free struct sock_filter *code = NULL;
	uint8_t how = draw(in);

	install.n = 1 + how % CODE_MAX;
	install.all = (how & 8) != 0;
	install.log = (how & 16) != 0;
	install.quiet = how >> 5;
	code = xalloc(install.n * sizeof(*code));
	for (uint32_t i = 0; i < install.n; i++) {
		uint8_t kind = draw(in);

		code[i] = (struct sock_filter){ .code = kind,
			.jt = draw(in),
			.jf = kind >> 4,
			.k = (uint32_t)draw(in) << (kind % 4 * 8) };
	}
	install.code = code;
	learned_add(l, &install, &tree, lives);
}

/* Its chain is as long as it says, of programs that are there. */
static void ask(const struct learned *l, struct input *in)
{
	const struct seccomp_data call = { .nr = draw(in), .args = { draw(in), draw(in) } };
	struct filter_program chain[LEARNED_CHAIN_MAX];
	struct learned_thread all[THREADS], who;
	struct learned_tree tree = draw_tree(in, all);
	int n;

	who = draw_thread(in);
	n = learned_programs(l, &tree, &who, chain);
	MUST(n == -ENODATA || n == (int)who.n);
	for (int i = 0; i < n; i++) {
		MUST(chain[i].n >= 1 && chain[i].n <= CODE_MAX);
		(void)filter_run(&chain[i], &call);
	}
	if (learned_refuses(l, &tree, &who, &call))
		MUST(l->hands_on && who.n > 0 && !who.traced);
}

/* What a dumper reads is whole: a head for each who has some, and behind it what it says. */
static void write_all(const struct learned *l, struct input *in)
{
	cleanup_buf struct buf out = BUF_INIT(WRITE_MAX);
	struct learned_thread all[THREADS];
	struct learned_tree tree = draw_tree(in, all);
	size_t at = 0, heads = 0, wanted = 0;

	for (size_t i = 0; i < tree.n; i++)
		wanted += all[i].n > 0;
	learned_write(l, &tree, &out);
	while (!buf_failed(&out) && at < out.n) {
		struct seized_thread t;

		MUST(out.n - at >= sizeof(t));
		memcpy(&t, out.p + at, sizeof(t));
		at += sizeof(t);
		heads++;
		for (uint32_t i = 0; t.n != SEIZED_SAME && i < t.n; i++) {
			struct seized_filter f;

			MUST(out.n - at >= sizeof(f));
			memcpy(&f, out.p + at, sizeof(f));
			at += sizeof(f);
			MUST(f.n >= 1 && f.n <= CODE_MAX &&
				out.n - at >= f.n * sizeof(struct sock_filter));
			at += f.n * sizeof(struct sock_filter);
		}
	}
	MUST(buf_failed(&out) || heads == wanted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct learned l = { 0 };

	while (in.n > 0) {
		uint8_t what = draw(&in) % 16;
		struct learned_thread who;

		if (what < 8) {
			add(&l, &in);
		} else if (what < 11) {
			ask(&l, &in);
		} else if (what < 14) {
			write_all(&l, &in);
		} else if (what == 14) {
			who = draw_thread(&in);
			learned_lost(&l, &who, draw(&in) % 2 != 0);
		} else {
			learned_adoption(&l);
		}
	}
	learned_fini(&l);
	return 0;
}
