/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: checkpoint/dump_parts.h - what the files share that look at descriptors. */
#ifndef CAY_CHECKPOINT_DUMP_PARTS_H
#define CAY_CHECKPOINT_DUMP_PARTS_H

#include "checkpoint/dump.h"
#include <limits.h>
#include <sys/socket.h>
#include <sys/stat.h>

/** struct subject - one descriptor while it is looked at. */
struct subject {
	struct dump_process *p;
	pid_t host; /* whose descriptor it is: the process's, or ours when it was found in a queue */
	int carrier; /* then the socket of the process whose queue that is, else -1 */
	int fd;      /* of @host */
	int copy;    /* ours, of the same description */
	struct stat st;
	char target[PATH_MAX + 64]; /* of the link in /proc */
	size_t target_n;
	struct buf info; /* fdinfo */
	uint32_t flags;  /* of the description */
	bool waits; /* a socket: what waits in it, or is on its way, is looked at when all are known */
	bool rests; /* a timerfd: it is not set, or goes off in this instant: dump_timerfds_end() */
	struct image_description out;
};

/** subject_refuse() - this descriptor is @why. Return: negative. */
int subject_refuse(const struct subject *s, struct err *err, const char *why);

/** subject_busy() - as above, of what a program that runs changes in a moment: a capture is tried again. */
int subject_busy(const struct dump *d, const struct subject *s, struct err *err, const char *why);

/** dump_is_called() - is the file @st of @p the one that is called @path, as @p sees it? */
bool dump_is_called(const struct dump_process *p, const char *path, const struct stat *st);

/** subject_is_deleted() - has the file no name any more? One that is there may be called as if it were not. */
bool subject_is_deleted(const struct subject *s);

typedef int subject_read(struct dump *d, struct subject *s);

/** subject_read_by_own() - @what with a description of ours in place of the sandbox's, which may be one to write. @flags: of open(2). Return: what it returns, or -errno. */
int subject_read_by_own(
	struct dump *d, struct subject *s, int flags, subject_read *what) attr_must_use;

/** dump_pipe() - fill s->out for an end of a pipe, or a named one. 0 or an error. */
int dump_pipe(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_inotify() - fill s->out for an inotify queue; its watches have no names yet. 0 or an error. */
int dump_inotify(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_pidfd() - fill s->out for a descriptor of a process or of a thread. 0 or an error. */
int dump_pidfd(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_pidfd_again() - can the process of @s, too, open @known for itself? 0 or an error. */
int dump_pidfd_again(const struct dump *d, const struct subject *s,
	const struct image_description *known, struct err *err) attr_must_use;

/** dump_terminal() - fill s->out for a master or a slave. Return: 1, 0 when it is neither, or an error. */
int dump_terminal(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_owner() - whom signals of a description are for, into s->out. */
void dump_owner(const struct dump *d, struct subject *s);

/** dump_owner_again() - @s is another descriptor of description @index: it may be the owner's own. */
void dump_owner_again(struct dump *d, const struct subject *s, uint32_t index);

/** struct owned_lock - a POSIX lock while its process is looked at. */
struct owned_lock {
	struct image_lock lock;
	uint64_t device, inode;
	bool fits; /* the descriptor is open in a way that may take it */
};

/** dump_locks() - those that s->info shows: of the description when it is seen for the first time, and of the process. 0 or an error. */
int dump_locks(
	struct dump *d, struct subject *s, bool description_is_new, struct err *err) attr_must_use;

/** dump_locks_end() - after all descriptors of @p: the locks that it owns. */
void dump_locks_end(struct dump *d, struct dump_process *p);

/** dump_proc_owner() - the process whose directory below /proc @path is or lies in; 0 = none. @ret_rest: what follows it, "" or from its "/" on. */
uint64_t dump_proc_owner(const char *path, const char **ret_rest);

/** dump_proc() - fill s->out for a file that /proc has about a process. Return: 1, 0 when it is none, or an error. */
int dump_proc(const struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_proc_again() - can the process of @s, too, open @known for itself? 0 or an error. */
int dump_proc_again(const struct dump *d, const struct subject *s,
	const struct image_description *known, struct err *err) attr_must_use;

/** dump_reading() - how far a directory was read, into s->out, of which everything else is there. 0 or -errno. */
int dump_reading(struct dump *d, struct subject *s) attr_must_use;

/** dump_removed_open() - fill s->out for a directory that was removed. */
void dump_removed_open(struct dump *d, struct subject *s);

/** dump_removed_place() - description of the directory @st that was removed, to work in. @path: as /proc has it, with DUMP_GONE. */
uint32_t dump_removed_place(struct dump *d, const char *path, const struct stat *st);

/** dump_timerfd() - fill s->out for a timer. 0 or -errno. */
int dump_timerfd(struct dump *d, struct subject *s) attr_must_use;

/** dump_timerfd_rests() - have dump_timerfds_end() look at timer @s once more, which is description @index. 0 or -errno. */
int dump_timerfd_rests(struct dump *d, const struct subject *s, uint32_t index) attr_must_use;

/** dump_socket() - fill s->out for a socket. 0 or an error. */
int dump_socket(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_options() - those of a socket, of which s->out has kind and type, that are not as they begin. 0 or an error. */
int dump_options(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_add_option() - the next option of a socket, whose rows are begun. */
void dump_add_option(
	struct dump *d, struct subject *s, int level, int name, const void *value, size_t n);

/** dump_groups() - of multicast, which a socket has joined, as its options. 0 or an error. */
int dump_groups(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_watches() - what the epoll set @s waits for, as its process names it. 0 or an error. */
int dump_watches(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_pipes_end() - after all descriptions: pair the ends of pipes, and say which others are of the same pipe. */
void dump_pipes_end(struct dump *d);

/** dump_watches_end() - after all descriptions: find what was watched by a number that is another's now, or nobody's. 0 or an error. */
int dump_watches_end(struct dump *d, struct err *err) attr_must_use;

/** dump_ping() - what is left of a socket of echo requests (ping), of which s->out has options and address. 0 or an error. */
int dump_ping(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_netlink() - what is left of a netlink socket of routes, behind its other options. 0 or an error. */
int dump_netlink(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_tcp() - what waits in a TCP connection, of which s->out has the number, and how far it has sent. 0 or an error. */
int dump_tcp(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_tcp_over() - what waits in a TCP socket whose connection has ended in both directions. 0 or an error. */
int dump_tcp_over(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_tcp_end() - when it is known which sockets are each other's ends: what each end is to receive, into its description. 0 or an error. */
int dump_tcp_end(struct dump *d, struct err *err) attr_must_use;

/** dump_unix() - what is left of a unix socket, of which s->out has options and address. */
int dump_unix(struct dump *d, struct subject *s, struct err *err) attr_must_use;

/** dump_socket_number() - an option of a socket. Return: its value, 0 when there is none. */
int dump_socket_number(int fd, int level, int option);

/** dump_socket_is_empty() - is there nothing that the kernel keeps in it for whoever receives: what came, answers, errors with what they are about? */
bool dump_socket_is_empty(int fd);

/** dump_socket_shut() - how one is shut down of which poll(2) tells @revents: 1 + SHUT_RD or SHUT_RDWR, 0 = not, or for sending alone. */
uint64_t dump_socket_shut(short revents);

/** dump_socket_find() - row of the description of the socket with @inode, or IMAGE_NONE. */
uint32_t dump_socket_find(const struct dump *d, uint32_t inode);

/** dump_description() - row @index of the descriptions; valid until the next is added. */
struct image_description *dump_description(struct dump *d, uint32_t index);

/** dump_known_from() - where those of that file begin among d->ordered, or would. */
size_t dump_known_from(const struct dump *d, uint64_t device, uint64_t inode);

/** dump_known_next() - the next that is known of the file of @s, from *@at on; NULL behind the last. */
const struct dump_known *dump_known_next(const struct dump *d, const struct subject *s, size_t *at);

/** dump_passed() - the description of @fd, our copy of what waits in the queue of @s. Takes @fd. @index: its row. 0 or an error. */
int dump_passed(struct dump *d, const struct dump_socket *s, int fd, uint32_t *index,
	struct err *err) attr_must_use;

/** dump_identity() - @said of ours as seen inside; pid 0 when it is no process of the tree. */
struct image_identity dump_identity(const struct dump *d, const struct ucred *said);

/** dump_network() - join the network of the sandbox, for good: the dumper has no use for another. Return: 0 or -errno. */
int dump_network(const struct dump_process *p) attr_must_use;

/** dump_diag() - send the sock_diag @request (NLM_F_DUMP, or of one socket NLM_F_ACK) and have each answer added. In the sandbox's network. Return: 0 or -errno. */
int dump_diag(
	const void *request, size_t size, void (*add)(const void *message, size_t n)) attr_must_use;

/** dump_queues() - what waits in the sockets of d->sockets, and in those that are found in it. 0 or an error. */
int dump_queues(struct dump *d, struct err *err) attr_must_use;

/** dump_unix_backlog() - who waits to be accepted by the listener @s. Return: 0, -EBUSY when only accepting would show all of it. */
int dump_unix_backlog(struct dump *d, const struct dump_socket *s) attr_must_use;

/** dump_sockets_end() - after all processes: find which sockets are each other's ends, and who waits in backlogs. 0 or an error. */
int dump_sockets_end(struct dump *d, struct err *err) attr_must_use;

#endif
