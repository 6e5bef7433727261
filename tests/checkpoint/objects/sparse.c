/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory of which little is there: nobody makes the rest, here or in a fork, and what is there is there, whoever has it in his page tables. */
#include "object.h"

#include <sys/ipc.h>
#include <sys/shm.h>

enum { PAGE = 4096, MIB = 1 << 20, BIG = 256 * MIB, MIDDLE = 64 * MIB, SMALL = MIB };

static unsigned char vector[BIG / PAGE];

static unsigned char *map(size_t n, int fd)
{
	unsigned char *p = mmap(
		NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);

	MUST(p != MAP_FAILED);
	return p;
}

/* Pages that are there, without touching any. */
static size_t pages(void *p, size_t n)
{
	size_t found = 0;

	MUST(mincore(p, n, vector) == 0);
	for (size_t i = 0; i < n / PAGE; i++)
		found += vector[i] & 1;
	return found;
}

static size_t pages_of(int fd)
{
	struct stat st;

	MUST(fstat(fd, &st) == 0);
	return (size_t)st.st_blocks * 512 / PAGE;
}

static int memory(size_t n)
{
	int fd = memfd_create("sparse", MFD_CLOEXEC);

	MUST(fd >= 0 && ftruncate(fd, (off_t)n) == 0);
	return fd;
}

static int removed(const char *path, size_t n)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);

	MUST(fd >= 0 && ftruncate(fd, (off_t)n) == 0 && unlink(path) == 0);
	return fd;
}

/* Two in the middle and the last one; the second of them only memory knows, no page table. */
static void fill(unsigned char *p, size_t n)
{
	p[n / 2] = 'm';
	p[n / 2 + PAGE] = 'n';
	p[n - 1] = 'e';
	MUST(madvise(p + n / 2 + PAGE, PAGE, MADV_DONTNEED) == 0);
}

static bool is_filled(const unsigned char *p, size_t n)
{
	return p[n / 2] == 'm' && p[n / 2 + PAGE] == 'n' && p[n - 1] == 'e' && p[0] == 0 &&
	       p[n / 2 - 1] == 0;
}

static unsigned char *map_closed(int fd, size_t n)
{
	unsigned char *p = map(n, fd);

	MUST(close(fd) == 0);
	return p;
}

int main(void)
{
	int file = memory(BIG), empty = memory(BIG), gone = removed("/dev/shm/gone", MIDDLE),
	    segment = shmget(IPC_PRIVATE, MIDDLE, IPC_CREAT | 0600);
	unsigned char *shared = map(BIG, -1), *small = map(SMALL, -1), *dense = map(BIG / 8, -1),
		      *closed = map_closed(memory(MIDDLE), MIDDLE),
		      *unlinked = map_closed(removed("/dev/shm/mapped", MIDDLE), MIDDLE),
		      *attached = shmat(segment, NULL, 0);
	char c;

	MUST(segment >= 0 && attached != (void *)-1);
	fill(shared, BIG);
	fill(small, SMALL);
	fill(closed, MIDDLE);
	fill(unlinked, MIDDLE);
	fill(attached, MIDDLE);
	/* full, but for a hole over the end of a huge page */
	memset(dense, 'd', BIG / 8);
	MUST(madvise(dense + 3 * MIB, 2 * MIB, MADV_REMOVE) == 0);
	MUST(pwrite(file, "middle", 6, BIG / 2) == 6);
	MUST(pwrite(gone, "gone", 4, MIDDLE / 2) == 4 && lseek(gone, 5, SEEK_SET) == 5);
	MUST(lseek(file, BIG / 2 + 1, SEEK_SET) == BIG / 2 + 1);

	object_ready();

	MUST(pages(shared, BIG) == 3);
	MUST(pages(small, SMALL) == 3);
	MUST(pages(closed, MIDDLE) == 3);
	MUST(pages(unlinked, MIDDLE) == 3);
	MUST(pages(attached, MIDDLE) == 3);
	MUST(pages(dense, BIG / 8) == (BIG / 8 - 2 * MIB) / PAGE);
	MUST(pages_of(file) == 1 && pages_of(empty) == 0 && pages_of(gone) == 1);
	MUST(read(file, &c, 1) == 1 && c == 'i' && lseek(gone, 0, SEEK_CUR) == 5);
	MUST(lseek(file, 0, SEEK_END) == BIG && lseek(empty, 0, SEEK_END) == BIG);
	MUST(lseek(gone, 0, SEEK_END) == MIDDLE);
	MUST(pread(gone, &c, 1, MIDDLE / 2 + 2) == 1 && c == 'n');
	MUST(dense[3 * MIB - 1] == 'd' && dense[3 * MIB] == 0 && dense[5 * MIB - 1] == 0 &&
		dense[5 * MIB] == 'd' && dense[BIG / 8 - 1] == 'd');
	MUST(is_filled(shared, BIG) && is_filled(small, SMALL) && is_filled(closed, MIDDLE));
	MUST(is_filled(unlinked, MIDDLE) && is_filled(attached, MIDDLE));
	return object_done();
}
