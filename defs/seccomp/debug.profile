# The default profile, plus what debuggers and tracers need inside one sandbox.
include default.profile
# with UNTRACED: by it LeakSanitizer looks at the other threads (no sandbox of this profile is resumed while pages are missing)
allow clone if arg0 & 0x7E028000 == 0
allow ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp
