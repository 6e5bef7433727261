# Ablation builds only: the default profile without its rule for socket families.
include ../default.profile
allow socket socketpair
