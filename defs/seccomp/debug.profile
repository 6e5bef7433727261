# The default profile, plus what debuggers and tracers need inside one sandbox.
include default.profile
allow ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp
