/* SPDX-License-Identifier: Apache-2.0 */
/* Whose filters are known (sandbox/learned.h): who installs them, for whom, in vain; who inherits them from whom; and what cannot be told. Process 1 is the one that orphans come to. */
#include "checkpoint/seizer.h"
#include "sandbox/learned.h"
#include "t.h"

static struct learned l;
static struct learned_thread threads[16];
static size_t n_threads;

static bool nobody_lives(attr_unused int32_t process)
{
	return false;
}

static void begin(void)
{
	learned_fini(&l);
	n_threads = 0;
}

static struct learned_thread *thread(int32_t tid, int32_t process, int32_t parent, uint32_t n)
{
	threads[n_threads] = (struct learned_thread){
		.tid = tid, .process = process, .parent = parent, .started = 7, .n = n
	};
	return &threads[n_threads++];
}

static struct learned_tree tree(void)
{
	return (struct learned_tree){ threads, n_threads, 1 };
}

/* A filter that is told by its number. */
static void install(const struct learned_thread *t, uint32_t which, bool all)
{
	const struct sock_filter code = BPF_STMT(BPF_RET | BPF_K, which);
	const struct learned_install install = { .who = *t, .all = all, .code = &code, .n = 1 };
	const struct learned_tree now = tree();

	learned_add(&l, &install, &now, nobody_lives);
}

static void take(struct learned_thread *t, uint32_t which)
{
	install(t, which, false);
	t->n++;
}

/* Two threads of one process, without any filter, beside another process that has one: what is inherited is not told by being the only one. */
static void begin_two(struct learned_thread **ret_first, struct learned_thread **ret_second)
{
	begin();
	*ret_first = thread(10, 10, 5, 0);
	*ret_second = thread(11, 10, 5, 0);
	take(thread(20, 20, 5, 0), 9);
}

/* What is known of all that have what @t has. */
static uint32_t quiet_of(const struct learned_thread *t)
{
	const struct learned_tree one = { t, 1, 1 };
	struct seized_filter head = { 0 };
	struct buf out = BUF_INIT(65536);

	learned_write(&l, &one, &out);
	check(out.n >= sizeof(struct seized_thread) + sizeof(head));
	memcpy(&head, out.p + sizeof(struct seized_thread), sizeof(head));
	buf_free(&out);
	return head.quiet;
}

/* The numbers of @t's filters, as digits, the oldest first; -1: it is not known. */
static int has(const struct learned_thread *t)
{
	const struct learned_tree one = tree();
	struct learned_tree all = one;
	struct buf out = BUF_INIT(65536);
	const char *at;
	int digits = 0;

	if (learned_chain(&l, &one, t) == LEARNED_UNKNOWN)
		return -1;
	learned_write(&l, &all, &out);
	for (at = out.p; at < out.p + out.n;) {
		struct seized_thread head;

		memcpy(&head, at, sizeof(head));
		at += sizeof(head);
		if (head.n != SEIZED_SAME)
			digits = 0;
		for (uint32_t i = 0; head.n != SEIZED_SAME && i < head.n; i++) {
			struct sock_filter code;

			memcpy(&code, at + sizeof(struct seized_filter), sizeof(code));
			digits = 10 * digits + (int)code.k;
			at += sizeof(struct seized_filter) + sizeof(code);
		}
		if (head.host == t->tid)
			break;
	}
	buf_free(&out);
	return digits;
}

TEST(who_installs_them_has_them)
{
	struct learned_thread *a, *b;

	begin();
	a = thread(10, 10, 1, 0);
	b = thread(20, 20, 1, 0);
	take(a, 1);
	take(b, 2);
	take(a, 3);
	check_int(has(a), 13);
	check_int(has(b), 2);
	b->n = 0; /* another by that number */
	b->started = 8;
	take(b, 4);
	check_int(has(b), 4);
}

TEST(what_was_in_vain_is_not_there)
{
	struct learned_thread *a;

	begin();
	a = thread(10, 10, 1, 0);
	take(a, 1);
	install(a, 2, false);
	check_int(has(a), 1);
	take(a, 3);
	check_int(has(a), 13);
	a->n = 3; /* nobody has seen that one */
	check_int(has(a), -1);
}

TEST(the_same_by_many_is_one)
{
	begin();
	for (int i = 0; i < 10; i++) {
		n_threads = 0;
		take(thread(10 + i, 10 + i, 1, 0), 1);
	}
	check_int(l.n_filters, 1);
	/* whoever has one, from whom it may be */
	check_int(has(thread(99, 99, 1, 1)), 1);
}

TEST(a_child_has_its_parents)
{
	struct learned_thread *a, *b, *of_a, *of_b, *late;

	begin();
	a = thread(10, 10, 5, 0);
	b = thread(20, 20, 5, 0);
	take(a, 1);
	take(b, 2);
	of_a = thread(11, 11, 10, 1);
	of_b = thread(21, 21, 20, 1);
	check_int(has(of_a), 1);
	check_int(has(of_b), 2);
	check_int(has(thread(12, 12, 11, 1)), 1);
	/* after it was made they have one more each */
	take(a, 3);
	check_int(has(of_a), 1);
	/* its own comes above that */
	take(of_a, 4);
	check_int(has(of_a), 14);
	late = thread(13, 13, 10, 2);
	check_int(has(late), 13);
}

TEST(an_orphan_may_be_anybodys)
{
	struct learned_thread *a, *b;

	begin();
	a = thread(10, 10, 5, 0);
	b = thread(20, 20, 5, 0);
	take(a, 1);
	check_int(has(thread(11, 11, 1, 1)), 1);
	take(b, 2);
	check_int(has(thread(12, 12, 1, 1)), -1);
	/* and whoever could have been adopted */
	check_int(has(thread(13, 13, 10, 1)), 1);
	learned_adoption(&l);
	check_int(has(thread(14, 14, 10, 1)), -1);
	check_int(has(a), 1);
}

TEST(threads_of_one_process)
{
	struct learned_thread *first, *second;

	begin_two(&first, &second);
	take(second, 1);
	check_int(has(second), 1);
	/* of the two that have one, only this one can have made it */
	check_int(has(thread(12, 10, 5, 1)), 1);
	check_int(has(thread(14, 10, 5, 1)), 1); /* as the one before it */
	check_int(has(thread(30, 30, 10, 1)), 1);
	take(first, 2);
	check_int(has(first), 2);
	check_int(has(thread(13, 10, 5, 1)), -1);
	check_int(has(thread(31, 31, 10, 1)), -1);
}

TEST(one_for_all_threads)
{
	struct learned_thread *first, *second;

	begin_two(&first, &second);
	install(first, 1, true); /* in vain */
	check_int(has(first), -1);
	take(second, 2);
	check_int(has(second), 2);
	second->n = 0;
	install(first, 3, true);
	first->n = second->n = 1;
	check_int(has(first), 3);
	check_int(has(second), 3);
	take(second, 4);
	check_int(has(second), 34);
	/* whoever has installed it, and knows whether it was so, is gone */
	second->n = 1;
	threads[0].tid = 99;
	check_int(has(second), -1);
}

TEST(one_for_all_threads_that_came_and_one_in_vain)
{
	struct learned_thread *first, *second;

	begin_two(&first, &second);
	install(second, 2, false); /* in vain */
	install(first, 3, true);
	first->n = second->n = 1;
	check_int(has(second), 3);
	install(first, 4, true); /* in vain */
	check_int(has(first), 3);
	check_int(has(second), 3);
	take(second, 5);
	check_int(has(second), 35);
}

TEST(two_for_all_threads_one_of_them_in_vain)
{
	struct learned_thread *first, *second;

	begin_two(&first, &second);
	install(first, 1, false); /* in vain */
	install(second, 2, true); /* in vain */
	install(first, 3, true);
	first->n = second->n = 1;
	/* by how many they have it could be either */
	check_int(has(first), -1);
	check_int(has(second), -1);
}

TEST(who_executes_a_program_takes_the_first_ones_number)
{
	struct learned_thread *first, *second;

	begin_two(&first, &second);
	take(first, 1);
	take(second, 2);
	check_int(has(first), 1);
	second->tid = 99; /* it is gone, or has become the first */
	second->process = 99;
	check_int(has(first), -1);
}

TEST(what_could_not_be_read)
{
	struct learned_thread *a;

	begin();
	a = thread(10, 10, 5, 0);
	take(a, 1);
	learned_lost(&l, a, false);
	check_int(has(a), 1); /* in vain */
	check_int(has(thread(11, 11, 10, 1)), -1);
	a->n = 2;
	take(a, 3); /* above what nobody knows */
	check_int(has(a), -1);
}

TEST(what_could_not_be_read_behind_what_was_in_vain)
{
	struct learned_thread *a, *b, *c;

	begin();
	a = thread(10, 10, 5, 0);
	b = thread(20, 20, 5, 0);
	c = thread(21, 20, 5, 0);
	install(a, 1, false); /* in vain */
	learned_lost(&l, a, false);
	a->n = 1;
	check_int(has(a), -1);
	install(c, 2, false); /* in vain */
	learned_lost(&l, b, true);
	b->n = c->n = 1;
	check_int(has(b), -1);
	check_int(has(c), -1);
	/* who has none has none that is unknown */
	a->n = 0;
	take(a, 3);
	check_int(has(a), 3);
}

TEST(who_executes_a_program_under_what_could_not_be_read)
{
	struct learned_thread *first, *second;

	begin();
	first = thread(10, 10, 5, 0);
	second = thread(11, 10, 5, 0);
	learned_lost(&l, second, false);
	take(first, 1);
	check_int(has(first), 1);
	second->tid = second->process = 99;
	check_int(has(first), -1);
}

TEST(what_could_not_be_read_is_somebodys)
{
	struct learned_thread *a;

	begin();
	a = thread(10, 10, 5, 0);
	take(a, 1);
	/* nobody knows whose */
	learned_lost(&l, &(struct learned_thread){ 0 }, false);
	check_int(has(a), -1);
}

static bool refuses(const struct learned_thread *t, int nr)
{
	const struct learned_tree now = tree();

	return learned_refuses(&l, &now, t, &(struct seccomp_data){ .nr = nr });
}

TEST(what_is_handed_to_nobody_is_refused)
{
	const struct sock_filter code[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 56, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct learned_thread *a, *b;
	struct learned_tree now;

	begin();
	a = thread(10, 10, 5, 0);
	b = thread(20, 20, 5, 0);
	take(a, SECCOMP_RET_ALLOW);
	now = tree();
	learned_add(&l, &(struct learned_install){ .who = *a, .code = code, .n = ARRAY_SIZE(code) },
		&now, nobody_lives);
	check(!refuses(a, 56)); /* in vain */
	a->n = 2;
	take(a, SECCOMP_RET_ALLOW);
	check(refuses(a, 56) && !refuses(a, 57));
	a->traced = true;
	check(!refuses(a, 56));
	take(b, SECCOMP_RET_LOG);
	check(!refuses(b, 56));
	/* an orphan: it may have that one */
	check(refuses(thread(30, 30, 1, 2), 56) && refuses(thread(31, 31, 1, 1), 56));
	check(!refuses(thread(32, 32, 1, 0), 56));
}

TEST(room_is_bounded)
{
	begin();
	for (int i = 0; i < 20000; i++) {
		n_threads = 0;
		take(thread(10 + i, 10 + i, 1, 0), (uint32_t)i);
	}
	check(l.n_filters <= 4096 && l.n_records <= 4096 && l.forgot);
	begin();
}

TEST(no_room_behind_what_was_in_vain)
{
	struct learned_thread *a;

	begin();
	a = thread(9, 9, 1, 0);
	install(a, 1, false); /* in vain */
	for (int i = 0; l.n_filters < 4096; i++) {
		n_threads = 1;
		take(thread(10, 10, 1, 0), (uint32_t)i + 2);
	}
	take(a, 9999);
	check_int(has(a), -1);
	begin();
}

static void take_quiet(struct learned_thread *t, uint32_t which, uint32_t quiet)
{
	const struct sock_filter code = BPF_STMT(BPF_RET | BPF_K, which);
	const struct learned_install install = { .who = *t, .code = &code, .n = 1, .quiet = quiet };
	const struct learned_tree now = tree();

	learned_add(&l, &install, &now, nobody_lives);
	t->n++;
}

/* Whoever has a filter may have it from anybody who has installed it: only what is known of all of those counts. */
TEST(what_is_known_of_all_that_have_it)
{
	struct learned_thread *first, *second;

	begin();
	first = thread(10, 10, 5, 0);
	second = thread(20, 20, 5, 0);
	take_quiet(first, 1, 3);
	check_int(quiet_of(first), 3);
	take_quiet(second, 1, 2);
	check_int(quiet_of(first), 2);
	check_int(quiet_of(second), 2);
	take_quiet(thread(30, 30, 5, 0), 2, 1);
	check_int(quiet_of(first), 2);
}

TEST(the_programs_that_somebody_has)
{
	struct filter_program programs[LEARNED_CHAIN_MAX];
	const struct learned_tree none = { 0 };
	struct learned_thread *t;

	begin();
	t = thread(10, 10, 5, 0);
	check_int(learned_programs(&l, &none, t, programs), 0);
	take(t, 1);
	take(t, 2);
	check_int(learned_programs(&l, &none, t, programs), 2);
	check(programs[0].n == 1 && programs[0].code->k == 1 && programs[1].code->k == 2);
	t->n = 5;
	check_int(learned_programs(&l, &none, t, programs), -ENODATA);
}
