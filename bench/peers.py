# SPDX-License-Identifier: Apache-2.0
"""The other programs that run a command in a sandbox, set up to do the same: /bin/true on this machine's own root, read-only, without network."""

import json
import os
import shutil
import subprocess

# In a mount namespace of its own, so that nothing is left behind: the root as a bundle's rootfs, and for crun, which refuses hybrid
# hosts, no v2 tree beside the v1 ones (what remains is what it calls legacy mode).
WRAP = """set -e
mount --bind / "$1/rootfs"
if [ -d /sys/fs/cgroup/unified ]; then umount /sys/fs/cgroup/unified; fi
shift
exec "$@"
"""


class Peers:
    """@directory: empty, ours. commands: {name: (prefix, argv)}; absent: {name: reason}."""

    def __init__(self, directory, user_is_root):
        self.directory = directory
        self.commands, self.absent = {}, {}
        if shutil.which("bwrap"):
            self.commands["bwrap"] = ([], ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"])
            self.commands["bwrap+dev"] = ([], ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev",
                                               "--tmpfs", "/tmp", "true"])
        else:
            self.absent["bwrap"] = "not installed"
        for name in ("crun", "runc", "runsc"):
            if not shutil.which(name):
                self.absent[name] = "not installed"
            elif not user_is_root:
                self.absent[name] = "set up for root only here"
            else:
                self.add_oci(name)

    def add_oci(self, name):
        bundle = os.path.join(self.directory, name)
        os.makedirs(os.path.join(bundle, "rootfs"), exist_ok=True)
        spec = "runc" if shutil.which("runc") else name
        if subprocess.run([spec, "spec"], cwd=bundle, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.absent[name] = f"{spec} spec failed"
            return
        path = os.path.join(bundle, "config.json")
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        config["process"].update(terminal=False, args=["/bin/true"], cwd="/")
        config["root"]["readonly"] = True
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)
        argv = [name, "--root", os.path.join(bundle, "state")]
        if name == "runsc":
            argv += ["--network=none", "--ignore-cgroups"]
        argv += ["run", "--bundle", bundle, f"cay-bench-{name}"]
        self.commands[name] = (["unshare", "-m", "--propagation", "private", "sh", "-c", WRAP, "sh", bundle], argv)
