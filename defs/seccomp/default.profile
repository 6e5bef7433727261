# System calls of the default profile. tools/gen_filters.py compiles this text to BPF at build time.
#
#   allow NAME...                        unconditionally
#   allow NAME if COND [and COND]...     COND: argN == V | argN & MASK == V | argN in V,V,...    (low 32 bits of the argument)
#                                        COND: argN null, all 64 bits of it
#   errno ERR NAME...                    refuse with that error (known and denied: EPERM; as if the kernel had none of it: ENOSYS)
#   otherwise ERR NAME                   what a conditional `allow` answers when no condition holds (default EPERM); SUCCESS: 0, and nothing is done
#   tell NAME if COND [and COND]...      refuse as `otherwise` says, and tell the keeper of it (an event); behind the `allow … if` lines of that name
#   learn NAME if COND [and COND]...     where filters of programs can be had in no other way (rootless): tell the keeper of it, which lets it go on
#   ration NAME if COND [and COND]...    tell the keeper of it, which lets it go on, or refuses it with ENOBUFS where there is too much (sandbox/ration.h); behind its `allow`, and
#                                        never what is told
#   know NAME...                         tell the keeper of it, which takes note and lets it go on; behind its `allow`
#   answer NAME...                       tell the keeper of it, which answers it instead of the kernel; behind its `allow`, which holds where nobody may listen
# Several `allow … if` lines of one name are alternatives. A name that is nowhere listed answers ENOSYS, so programs fall back as on an older kernel.
# A foreign architecture kills the process; x32 numbers answer ENOSYS.

# files
allow access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64 fallocate
allow fchdir fchmod fchmodat fchmodat2 fchown fchownat fdatasync fgetxattr flistxattr flock fremovexattr fstat fstatfs fsync
allow ftruncate futimesat getcwd getdents getdents64 getxattr getxattrat lchown lgetxattr link linkat listxattr listxattrat llistxattr
allow lremovexattr lseek lstat mkdir mkdirat mknod mknodat newfstatat open openat openat2 pread64 preadv preadv2 pwrite64
allow pwritev pwritev2 read readahead readlink readlinkat readv removexattr removexattrat rename renameat renameat2 rmdir sendfile
allow splice stat statfs statx symlink symlinkat sync sync_file_range syncfs tee truncate umask unlink unlinkat utime utimensat utimes write writev
allow inotify_add_watch inotify_init inotify_init1 inotify_rm_watch pipe pipe2
# No value of 4,032 bytes and more: access lists of files in memory, which can have 64 KiB each, are charged to nobody. What is less is kept in a page; as on ext4, where a value has
# to fit into a block beside its name.
allow setxattr if arg3 & 0xFFFFF000 == 0 and arg3 & 0xFC0 != 0xFC0
otherwise ENOSPC setxattr
allow lsetxattr if arg3 & 0xFFFFF000 == 0 and arg3 & 0xFC0 != 0xFC0
otherwise ENOSPC lsetxattr
allow fsetxattr if arg3 & 0xFFFFF000 == 0 and arg3 & 0xFC0 != 0xFC0
otherwise ENOSPC fsetxattr
# its size lies behind a pointer: as before Linux 6.13
errno ENOSYS setxattrat
# no F_SETLEASE 1024, F_SETDELEG 1040, nor what is not known yet: whoever may read a file, through a read-only mount too, could keep the machine's own programs waiting
# at its open(); as on a file system that has no leases
allow fcntl if arg1 & 0xFFFFFFF0 == 0
allow fcntl if arg1 in 16,17,36,37,38
allow fcntl if arg1 & 0xFFFFFFF0 == 1024 and arg1 != 1024
otherwise EINVAL fcntl
# memory
allow brk get_robust_list map_shadow_stack membarrier mincore mlock mlock2 mlockall mprotect mremap msync munlock munlockall munmap
allow pkey_free pkey_mprotect set_robust_list
# no MADV_MERGEABLE 12: how long a write takes tells what a neighbour's page holds where the machine merges pages; as in a kernel that does not
allow madvise if arg2 != 12
otherwise EINVAL madvise
# no huge pages of those that the machine has put aside (MAP_HUGETLB, MFD_HUGETLB, SHM_HUGETLB): no limit of memory counts them, and there are few; as if none was left, or
# as a kernel that knows no such files: Chromium asks with all flags at once whether there is memfd_create(), and wants EINVAL
allow mmap if arg3 & 0x40000 == 0
otherwise ENOMEM mmap
allow memfd_create if arg1 & 4 == 0
otherwise EINVAL memfd_create
allow shmget if arg2 & 0x800 == 0
otherwise ENOMEM shmget
# processes and threads
allow arch_prctl capget capset execve execveat exit exit_group fork getegid geteuid getgid getgroups getpgid getpgrp getpid getppid getpriority
allow getresgid getresuid getrlimit getrusage getsid gettid getuid kill pidfd_open pidfd_send_signal pause restart_syscall rseq
allow sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
allow sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield set_thread_area get_thread_area set_tid_address setfsgid setfsuid setgid setgroups setitimer
allow setpgid setpriority setregid setresgid setresuid setreuid setsid setuid tgkill tkill times uname vfork wait4 waitid chroot
allow getitimer alarm getcpu sysinfo ioprio_get ioprio_set
# tells the size and load of the machine: its answer is that of the sandbox (docs/design/0007, *Size of the machine*)
answer sysinfo
allow landlock_create_ruleset landlock_add_rule landlock_restrict_self statmount listmount
# nothing shows it afterwards, and a live fork does not have it (docs/design/0006, *Refused*)
know landlock_restrict_self
# RLIMIT_CORE (4) stays what it is, 1: with 0, which programs with secrets set themselves, the kernel hands a dump to a collector behind a pipe all the same (core(5)). Who sets it hears that
# it is done.
allow setrlimit if arg0 != 4
otherwise SUCCESS setrlimit
allow prlimit64 if arg1 != 4
allow prlimit64 if arg2 null
otherwise SUCCESS prlimit64
# no namespace flag: NEWNS CGROUP UTS IPC USER PID NET; no UNTRACED, by which a thread could run while pages are missing (prog/cay-template/tracing.h)
# Nor PARENT: the programs of execs are children of the keeper, whose child it would be.
allow clone if arg0 & 0x7E828000 == 0
otherwise EPERM clone
# its flags lie behind a pointer: a filter cannot see them, and libc falls back to clone
errno ENOSYS clone3
# FS, FILES, SYSVSEM
allow unshare if arg0 & 0xFFFBF9FF == 0
otherwise EPERM unshare
# signals
allow rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sigaltstack signalfd signalfd4
# time
allow clock_getres clock_gettime clock_nanosleep gettimeofday nanosleep time timer_create timer_delete timer_getoverrun timer_gettime timer_settime
allow timerfd_create timerfd_gettime timerfd_settime
# waiting
allow epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 futex futex_requeue futex_wait futex_waitv futex_wake poll ppoll pselect6 select
# System V and POSIX inter-process communication, in a namespace of its own
allow msgctl msgget msgrcv msgsnd semctl semget semop semtimedop shmat shmctl shmdt
allow mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink
allow getrandom
# sockets: unix, and TCP, UDP or echo requests (ping) over IPv4 and IPv6; routing netlink for getifaddrs. MPTCP must fail the way Go expects.
allow socket if arg0 == 1 and arg1 & 0xF in 1,2,5
allow socket if arg0 in 2,10 and arg1 & 0xF == 1 and arg2 in 0,6
allow socket if arg0 in 2,10 and arg1 & 0xF == 2 and arg2 in 0,17
allow socket if arg0 == 2 and arg1 & 0xF == 2 and arg2 == 1
allow socket if arg0 == 10 and arg1 & 0xF == 2 and arg2 == 58
allow socket if arg0 == 16 and arg2 == 0
# who tries these wants past what is decided of connections: raw; packet, by type and by family; vsock, the way to the machine's own host; SCTP, DCCP, UDP-Lite
tell socket if arg0 in 2,10 and arg1 & 0xF in 3,10
tell socket if arg0 in 17,40
tell socket if arg0 in 2,10 and arg2 in 33,132,136
otherwise EAFNOSUPPORT socket
# what waits in these unread is charged to nobody
ration socket if arg0 == 16 and arg2 == 0
ration socket if arg0 in 2,10 and arg1 & 0xF == 2 and arg2 in 1,58
allow socketpair if arg0 == 1
otherwise EAFNOSUPPORT socketpair
allow accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg shutdown
# no MSG_FASTOPEN: it connects without connect()
allow sendto if arg3 & 0x20000000 == 0
allow sendmsg if arg2 & 0x20000000 == 0
allow sendmmsg if arg3 & 0x20000000 == 0
# refused options: TCP_FASTOPEN_CONNECT 30, TCP_ULP 31, TCP_REPAIR 19, what is behind TCP_TX_DELAY 37 (TCP_AO_ADD_KEY 38 has the kernel load and make ciphers by name),
# UDP_ENCAP 100, SO_ATTACH_BPF 50, SO_ATTACH_REUSEPORT_EBPF 52; raw table options of netfilter (64 and up of
# the levels IP and IPv6, but for IPV6_RECVTCLASS 66 and IPV6_TCLASS 67, which netfilter has no options of: its own end with 65)
allow setsockopt if arg1 == 1 and arg2 notin 50,52
allow setsockopt if arg1 == 6 and arg2 & 0xFFFFFFE0 == 0 and arg2 notin 19,30,31
allow setsockopt if arg1 == 6 and arg2 in 32,33,34,35,36,37
allow setsockopt if arg1 == 17 and arg2 != 100
# and flow labels (IPV6_FLOWLABEL_MGR 32), of which there is one table of 4,096 for the machine
allow setsockopt if arg1 == 0 and arg2 & 0xFFFFFFC0 == 0
allow setsockopt if arg1 == 41 and arg2 & 0xFFFFFFC0 == 0 and arg2 != 32
allow setsockopt if arg1 == 41 and arg2 in 66,67
allow setsockopt if arg1 == 270
# a device keeps groups of multicast and their sources, and charges them to nobody: ADD, BLOCK, ADD_SOURCE, MSFILTER of IPv4; MCAST_JOIN_GROUP, BLOCK_SOURCE, JOIN_SOURCE_GROUP,
# MSFILTER of both; IPV6_ADD_MEMBERSHIP (another option that has one of these numbers in the other level counts as one, too, until it is looked)
ration setsockopt if arg1 in 0,41 and arg2 in 20,35,38,39,41,42,43,46,48
# compiled, these are of one room of the machine (net.core.bpf_jit_limit): SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF
ration setsockopt if arg1 == 1 and arg2 in 26,51
# ioctl: terminals, FIONREAD and friends, interface queries, file flags (reading). TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS, FICLONE, BTRFS_IOC_* are not here.
allow ioctl if arg1 in 0x5401,0x5402,0x5403,0x5404,0x5405,0x5406,0x5407,0x5408,0x5409,0x540A,0x540B,0x540C,0x540D,0x540E,0x540F,0x5410,0x5411
allow ioctl if arg1 in 0x5413,0x5414,0x541B,0x5421,0x5422,0x5429,0x5441,0x5450,0x5451,0x5452,0x5460
allow ioctl if arg1 in 0x80045430,0x40045431,0x80045432,0x80045438,0x80045440,0x802C542A,0x402C542B,0x402C542C,0x402C542D,0x5420,0x40045436,0x5425
allow ioctl if arg1 in 0x8901,0x8902,0x8903,0x8904,0x8905,0x8910,0x8912,0x8913,0x8915,0x8917,0x8919,0x891B,0x891D,0x8921,0x8927,0x8933,0x8942
allow ioctl if arg1 in 0x80086601,0x801C581F,2,0x80047213,0x80087601,0x80047601
otherwise ENOTTY ioctl
# NAME, DUMPABLE, PDEATHSIG, KEEPCAPS, NO_NEW_PRIVS, SECCOMP, TIMERSLACK, SUBREAPER, CAPBSET_READ, TID_ADDRESS, THP, SET_VMA, SET_PTRACER, MDWE (get), ambient queries
allow prctl if arg0 in 1,2,3,4,7,8,15,16,21,22,23,27,29,30,35,36,37,38,39,40,41,42,47,66,0x53564d41,0x59616d61
allow prctl if arg0 == 53 and arg2 == 8
allow prctl if arg0 == 24
# TIMER_CREATE_RESTORE_IDS, only to end it: who is made again has begun it before this filter (docs/design/0006-live-fork.md)
allow prctl if arg0 == 77 and arg1 == 0
otherwise EINVAL prctl
# a program's own filter: SECCOMP_SET_MODE_FILTER, PR_SET_SECCOMP with SECCOMP_MODE_FILTER. This one is installed with a fourth argument that the kernel does not look at
# (CONFINE_OURS), by which nobody is told of it; below it nobody can do so.
allow seccomp if arg3 != 0x59414321
learn seccomp if arg0 == 1 and arg3 != 0x59414321
learn prctl if arg0 == 22 and arg1 == 2
# compiled, they are of one room of the machine (net.core.bpf_jit_limit)
ration seccomp if arg0 == 1 and arg3 != 0x59414321
ration prctl if arg0 == 22 and arg1 == 2
# what makes somebody the child of another than who made it: PR_SET_CHILD_SUBREAPER, whose argument is of 64 bits, but for the dumper, who takes it away and makes it so again with a
# third argument (CONFINE_OURS)
learn prctl if arg0 == 36 and arg2 != 0x59414321
allow personality if arg0 in 0,8,0x20000,0x20008,0xFFFFFFFF
otherwise EPERM personality

# known and denied
errno EPERM setns ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise process_mrelease
errno ENOSYS keyctl add_key request_key
errno EPERM bpf perf_event_open userfaultfd fanotify_init fanotify_mark lookup_dcookie quotactl quotactl_fd
errno ENOSYS io_uring_setup io_uring_enter io_uring_register io_setup io_submit io_destroy io_getevents io_pgetevents io_cancel
errno EPERM open_by_handle_at name_to_handle_at
errno EPERM mount umount2 pivot_root open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr swapon swapoff acct
errno EPERM init_module finit_module delete_module kexec_load kexec_file_load reboot iopl ioperm settimeofday clock_settime adjtimex clock_adjtime
errno EPERM sethostname setdomainname syslog vhangup uselib ustat sysfs modify_ldt remap_file_pages move_pages migrate_pages mbind set_mempolicy set_mempolicy_home_node
errno ENOSYS get_mempolicy memfd_secret cachestat
# as before Linux 6.10: a live fork would have what was sealed open to change
errno ENOSYS mseal
errno EPERM vmsplice
# no protection key is left: a live fork would not have it, and who wants one (V8) does without
errno ENOSPC pkey_alloc
