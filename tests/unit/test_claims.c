/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims (prog/cay-template/claims.h) against a model of an address space: one task moves, grows, shrinks, replaces, unmaps, gives back and forks blocks of it as mremap(), munmap(), mmap(), madvise() and
 * fork() do, and says so afterwards, one message after the other. When it has said all, what is claimed is what is there.
 */
#include "prog/cay-template/claims.c"
#include "t.h"

#define PAGES  96 /* of the address space */
#define FIRST  16 /* address of the first, in pages */
#define BLOCKS 5
#define BLOCK  4
#define FORKS  3
#define ROUNDS 60000
#define STEPS  40

#define UNMAPPED (-1)
#define ZEROS    0 /* mapped; else the number of a page of the stash */

struct block {
	int at, pages; /* none: 0 pages */
};

struct space {
	int at[PAGES];
	struct block blocks[BLOCKS];
	struct claims claims;
};

static struct space spaces[FORKS + 1];
static int n_spaces;
static uint64_t draw_state;

void *claims_room(uint64_t bytes)
{
	/* never given back, as there; the test needs little */
	static struct room {
		struct room *next;
		_Alignas(16) char bytes[];
	} * rooms;
	struct room *one = calloc(1, sizeof(*one) + bytes);

	if (one == NULL)
		return NULL;
	one->next = rooms;
	rooms = one;
	return one->bytes;
}

static unsigned int draw(unsigned int n)
{
	draw_state ^= draw_state << 13;
	draw_state ^= draw_state >> 7;
	draw_state ^= draw_state << 17;
	return (unsigned int)((draw_state >> 33) % n);
}

static uint64_t address(int page)
{
	return (uint64_t)(FIRST + page) * BARE_PAGE;
}

static void set(struct space *s, int at, int n, int value)
{
	for (int i = at; i < at + n; i++)
		s->at[i] = value;
}

static bool is_free(const struct space *s, int at, int n)
{
	for (int i = at; i < at + n; i++) {
		if (i >= PAGES || s->at[i] != UNMAPPED)
			return false;
	}
	return true;
}

static int find_free(const struct space *s, int n)
{
	int from = (int)draw(PAGES / 3);

	for (int i = from; i + n <= PAGES; i++) {
		if (is_free(s, i, n))
			return i;
	}
	return -1;
}

static void unmap(struct space *s, int at, int n)
{
	set(s, at, n, UNMAPPED);
	check(claims_drop(&s->claims, address(at), address(at + n)));
}

/* @stay: MREMAP_DONTUNMAP, which says less. */
static void move(struct space *s, struct block *b, int to, int new_n, bool stay)
{
	int from = b->at, n = b->pages;

	for (int i = 0; i < n; i++)
		s->at[to + i] = s->at[from + i];
	set(s, to + n, new_n - n, ZEROS);
	set(s, from, n, stay ? ZEROS : UNMAPPED);
	check(claims_move(&s->claims, address(from), address(from + n), address(to)));
	if (!stay)
		check(claims_drop(&s->claims, address(from), address(from + n)));
	*b = (struct block){ to, new_n };
}

static void move_somewhere(struct space *s, struct block *b, bool grow, bool stay)
{
	int n = b->pages + (grow ? 1 + (int)draw(3) : 0), to = find_free(s, n);

	if (to >= 0)
		move(s, b, to, n, stay);
}

/* Onto another block, which is unmapped first. */
static void move_over(struct space *s, struct block *b)
{
	struct block *other = &s->blocks[draw(BLOCKS)];
	int at = other->at;

	if (other == b || other->pages < b->pages)
		return;
	unmap(s, at, other->pages);
	other->pages = 0;
	move(s, b, at, b->pages, false);
}

static void unmap_part(struct space *s, struct block *b)
{
	int n = 1 + (int)draw((unsigned int)b->pages);
	bool head = draw(2) != 0;

	unmap(s, head ? b->at : b->at + b->pages - n, n);
	b->at += head ? n : 0;
	b->pages -= n;
}

/* In place, which nobody is told of. */
static void grow(struct space *s, struct block *b)
{
	if (is_free(s, b->at + b->pages, 1))
		set(s, b->at + b->pages++, 1, ZEROS);
}

static void give_back(struct space *s, const struct block *b)
{
	int n = 1 + (int)draw((unsigned int)b->pages),
	    at = b->at + (int)draw((unsigned int)(b->pages - n + 1));

	check(claims_drop(&s->claims, address(at), address(at + n)));
	set(s, at, n, ZEROS);
}

static void fork_it(const struct space *s)
{
	struct space *child = &spaces[n_spaces];
	struct claims room = child->claims;

	if (n_spaces > FORKS)
		return;
	n_spaces++;
	*child = *s;
	child->claims = room;
	check(claims_copy(&s->claims, &child->claims));
}

static void step(struct space *s)
{
	struct block *b = &s->blocks[draw(BLOCKS)];

	if (b->pages == 0)
		return;
	switch (draw(9)) {
	case 0:
	case 1:
		move_somewhere(s, b, false, false);
		break;
	case 2:
		move_somewhere(s, b, true, false);
		break;
	case 3:
		move_over(s, b);
		break;
	case 4:
		unmap_part(s, b);
		break;
	case 5:
		give_back(s, b);
		break;
	case 6:
		grow(s, b);
		break;
	case 7:
		fork_it(s);
		break;
	default:
		move_somewhere(s, b, false, true);
		break;
	}
}

static void agrees(const struct space *s)
{
	for (int i = 0; i < PAGES; i++) {
		const struct claim *one = claims_find(&s->claims, address(i));
		uint64_t want = s->at[i] > 0 ? (uint64_t)s->at[i] * BARE_PAGE : 0;
		uint64_t is = one == NULL ? 0 : one->stash + (address(i) - one->start);

		if (is != want) {
			printf("# page %d: %d is there, claimed is %d\n", i, s->at[i],
				(int)(is / BARE_PAGE));
			t_fail("it is wrong");
			return;
		}
	}
}

static void begin(struct space *s)
{
	int stash = 1, at = 0;

	n_spaces = 1;
	s->claims.n = 0;
	set(s, 0, PAGES, UNMAPPED);
	for (int i = 0; i < BLOCKS; i++) {
		at += (int)draw(2);
		s->blocks[i] = (struct block){ at, BLOCK };
		check(claims_put(&s->claims, (struct claim){ address(at), address(at + BLOCK),
						     (uint64_t)stash * BARE_PAGE }));
		for (int p = 0; p < BLOCK; p++)
			s->at[at++] = stash++;
	}
}

TEST(what_is_claimed_is_what_is_there)
{
	for (uint64_t seed = 1; seed <= ROUNDS && t_failed == 0; seed++) {
		draw_state = seed * 0x9e3779b97f4a7c15ULL + 1;
		begin(&spaces[0]);
		for (int i = 0; i < STEPS && t_failed == 0; i++) {
			struct space *s = &spaces[draw((unsigned int)n_spaces)];

			step(s);
			agrees(s);
		}
		for (int i = 0; i < n_spaces && t_failed == 0; i++)
			agrees(&spaces[i]);
		if (t_failed != 0)
			printf("# seed %d\n", (int)seed);
	}
}

/* Of what no address space has yet, what comes next in the order of the stash. */
TEST(what_comes_next)
{
	struct claims c = { 0 };
	const struct claim *one;

	check(claims_next(&c, 0) == NULL);
	check(claims_put(&c, (struct claim){ 0x9000, 0xb000, 0x1000 }));
	check(claims_put(&c, (struct claim){ 0x1000, 0x3000, 0x5000 }));
	one = claims_next(&c, 0x2000);
	check(one != NULL && one->start == 0x9000);
	one = claims_next(&c, 0x3000);
	check(one != NULL && one->start == 0x1000);
	check(claims_next(&c, 0x7000) == NULL);
}
