/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that the kernel may take at any time (MAP_DROPPABLE, from Linux 6.11 on): it is that still, and a fork begins without what was in it. There the C library keeps what the
 * vDSO's getrandom() draws from: a fork that had it would draw what its source does.
 */
#include "object.h"

#include <elf.h>
#include <sys/auxv.h>

#define DROPPABLE  0x08
#define GENERATION "/run/cay/generation" /* only where a sandbox goes on from an instant */

enum { DRAWN = 32, NAMES_MAX = 64, PAGE = 4096 };

/* struct vgetrandom_opaque_params */
struct parameters {
	uint32_t size, prot, flags, reserved[13];
};

typedef ssize_t draw_random(void *to, size_t n, unsigned int flags, void *state, size_t size);

/* A name of the vDSO; NULL: it has none. */
static void *vdso(const char *name)
{
	const char *base = (const char *)getauxval(AT_SYSINFO_EHDR);
	const Elf64_Ehdr *head = (const Elf64_Ehdr *)(const void *)base;
	const Elf64_Phdr *p = (const Elf64_Phdr *)(const void *)(base + head->e_phoff);
	const Elf64_Dyn *d = NULL;
	const Elf64_Sym *symbols = NULL;
	const char *names = NULL, *loaded = base;

	for (int i = 0; base != NULL && i < head->e_phnum; i++) {
		if (p[i].p_type == PT_DYNAMIC)
			d = (const Elf64_Dyn *)(const void *)(base + p[i].p_offset);
		else if (p[i].p_type == PT_LOAD)
			loaded = base + p[i].p_offset - p[i].p_vaddr;
	}
	for (; d != NULL && d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_SYMTAB)
			symbols = (const Elf64_Sym *)(const void *)(loaded + d->d_un.d_ptr);
		else if (d->d_tag == DT_STRTAB)
			names = loaded + d->d_un.d_ptr;
	}
	/* behind the symbols */
	for (int i = 0; symbols != NULL && names != NULL && i < NAMES_MAX &&
			(const char *)(symbols + i + 1) <= names;
		i++) {
		if (strcmp(names + symbols[i].st_name, name) == 0)
			return (void *)(uintptr_t)(loaded + symbols[i].st_value);
	}
	return NULL;
}

/* Of the mapping in which it lies, which may have grown together with another. */
static bool is_droppable(const void *at)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long start, end, address = (unsigned long)at;
	char line[512];
	bool here = false, found = false;

	MUST(f != NULL);
	while (fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = start <= address && address < end;
		else if (here && strncmp(line, "VmFlags:", 8) == 0)
			found = strstr(line, " dp") != NULL;
	}
	(void)fclose(f);
	return found;
}

int main(void)
{
	void *address = vdso("__vdso_getrandom");
	draw_random *draw = NULL;
	struct parameters wants = { 0 };
	char *held = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, DROPPABLE | MAP_ANONYMOUS, -1, 0),
	     *state = NULL;
	_Alignas(PAGE) char copy[PAGE]; /* the call wants it in one page */
	char own[DRAWN], others[DRAWN];

	if (held == MAP_FAILED) {
		object_ready();
		return object_done();
	}
	strcpy(held, "held");
	memcpy(&draw, &address, sizeof(draw));
	if (draw != NULL) {
		MUST(draw(NULL, 0, 0, &wants, ~0UL) == 0 && wants.size <= PAGE);
		state = mmap(NULL, PAGE, (int)wants.prot, (int)wants.flags, -1, 0);
		MUST(state != MAP_FAILED && draw(own, 1, 0, state, wants.size) == 1);
		memcpy(copy, state, PAGE);
	}

	object_ready();

	MUST(is_droppable(held));
	if (access(GENERATION, F_OK) != 0)
		return object_done();
	MUST(held[0] == '\0');
	if (draw != NULL) {
		MUST(draw(others, DRAWN, 0, copy, wants.size) == DRAWN);
		MUST(draw(own, DRAWN, 0, state, wants.size) == DRAWN);
		MUST(memcmp(own, others, DRAWN) != 0);
	}
	strcpy(held, "again");
	MUST(strcmp(held, "again") == 0);
	return object_done();
}
