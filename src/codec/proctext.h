/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/proctext.h - what the kernel writes about a process in /proc/PID: maps, stat, status, fdinfo (proc(5)).
 *
 * The kernel writes it, but names in it are the payload's. Nothing is allocated; results point into the text.
 */
#ifndef CAY_CODEC_PROCTEXT_H
#define CAY_CODEC_PROCTEXT_H

#include "base/attr.h"
#include <sys/types.h>

/** struct proc_map - one line of maps. */
struct proc_map {
	uint64_t start, end, offset, inode;
	unsigned int major, minor;
	bool readable, writable, executable, shared;
	const char *name; /* as written: a newline is \012, and "(deleted)" may follow */
	size_t name_size;
	bool literal; /* the file is called so, also where that ends in "(deleted)"; not from here: dump_names() */
};

/**
 * proc_map_next() - read the line at *@at and step over it.
 * @end: behind the text. Return: 1, 0 at the end, -EINVAL for a malformed line.
 */
int proc_map_next(const char **at, const char *end, struct proc_map *ret) attr_must_use;

/** struct proc_smap - what smaps says of one mapping. */
struct proc_smap {
	uint64_t start, end;
	const char *flags; /* two letters each, between blanks */
	size_t flags_size;
	bool own; /* it has pages that belong to the process alone, there or swapped out */
};

/**
 * proc_smap_next() - read the mapping that begins at *@at, up to its line of flags, and step over that.
 * @end: behind the text. Return: 1, 0 at the end, -EINVAL for a malformed line or one without flags.
 */
int proc_smap_next(const char **at, const char *end, struct proc_smap *ret) attr_must_use;

/** proc_smap_has() - is @flag, of two letters, among those of @m? */
bool proc_smap_has(const struct proc_smap *m, const char *flag);

/** struct proc_stat - fields of stat. */
struct proc_stat {
	char name[16]; /* cut off there, as the kernel has it */
	char state;
	int ppid, group, session, terminal, terminal_group;
	unsigned long long flags;
	unsigned long long user_time, system_time; /* ticks, of all its threads */
	long long nice;
	unsigned long long start_code, end_code, start_stack, start_data, end_data, start_brk,
		arg_start, arg_end, env_start, env_end;
	int exit_signal;            /* what its parent gets when it ends, 0 = nothing */
	int exit_code;              /* as of wait(2), of a zombie */
	unsigned long long started; /* ticks behind the machine's start */
};

/** proc_stat_parse() - @text: ends with NUL. Return: 0 or -EINVAL. */
int proc_stat_parse(const char *text, struct proc_stat *ret) attr_must_use;

/**
 * proc_value() - what follows "@key:" at the beginning of a line, without blanks.
 * @text: ends with NUL. Return: points into @text up to its end (not to the line's), NULL when there is no such line.
 */
const char *proc_value(const char *text, const char *key);

/** proc_numbers() - up to @max numbers of base @base (8, 10, 16) on the line of @key. Return: how many. */
size_t proc_numbers(const char *text, const char *key, int base, uint64_t *ret, size_t max);

/** proc_number() - the first one, or @otherwise. */
uint64_t proc_number(const char *text, const char *key, int base, uint64_t otherwise);

enum proc_lock_kind { PROC_LOCK_POSIX = 1, PROC_LOCK_FLOCK, PROC_LOCK_OFD, PROC_LOCK_OTHER };

/** struct proc_lock - a lock as fdinfo shows it. */
struct proc_lock {
	enum proc_lock_kind kind; /* other: leases and what is to come */
	bool exclusive;
	int pid;                /* of a POSIX lock: its process, as the reader of /proc counts */
	uint64_t start, length; /* 0 = to the end */
};

/**
 * proc_lock_next() - read the next line "lock:" at or behind *@at, which ends with NUL, and step over it.
 * Return: 1, 0 when there is none, -EINVAL for a malformed line.
 */
int proc_lock_next(const char **at, struct proc_lock *ret) attr_must_use;

#endif
