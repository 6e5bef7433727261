# The default profile, less: no capability is left for these, and the page-cache bug family needs splice.
include default.profile
errno EPERM chroot splice tee mknod mknodat
