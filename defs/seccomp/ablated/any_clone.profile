# Ablation builds only: the default profile with every way to make a namespace.
include ../default.profile
allow clone clone3 unshare setns
