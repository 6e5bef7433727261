# Ablation builds only: the default profile without its list of ioctls.
include ../default.profile
allow ioctl
