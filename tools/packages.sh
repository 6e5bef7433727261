#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# packages.sh PURPOSE... - install the Debian packages of tools/packages.txt that are missing.
#
# PURPOSE is test, demo, bench or vm; packages without a purpose are always wanted. As root they are installed quietly; otherwise the command
# is printed and the status is 1. When everything is there this costs one dpkg-query. A name with @VERSION is wanted on that Debian alone,
# one with ?PROGRAM where that program is missing.
# Other distributions: does nothing.
set -eu

list=$(dirname "$0")/packages.txt
command -v dpkg-query >/dev/null 2>&1 || exit 0

version=$(sed -n 's/^VERSION_ID="*\([^"]*\)"*$/\1/p' /etc/os-release)
wanted=$(awk -v purposes=" $* " -v version="$version" '
	/^[[:space:]]*(#|$)/ { next }
	{
		wanted = 1
		if (match($0, /#[[:space:]]*(test|demo|bench|vm)(, (test|demo|bench|vm))*:/)) {
			n = split(substr($0, RSTART + 1, RLENGTH - 2), named, /[[:space:],]+/)
			wanted = 0
			for (i = 1; i <= n; i++)
				wanted += named[i] != "" && index(purposes, " " named[i] " ") > 0
		}
		n = split($1, name, "@")
		if (wanted && (n == 1 || name[2] == version))
			print name[1]
	}' "$list" | sort -u)

# "package?program" is wanted where there is no such program: it may have come some other way.
wanted=$(for package in $wanted; do
	case $package in
	*\?*) command -v "${package#*\?}" >/dev/null 2>&1 || printf '%s\n' "${package%%\?*}" ;;
	*) printf '%s\n' "$package" ;;
	esac
done)

# dpkg-query names what it does not know on stderr and fails; what it prints is what counts.
# shellcheck disable=SC2086
have=$(dpkg-query -W -f '${Status}|${Package}\n' $wanted 2>/dev/null | sed -n 's/^install ok installed|//p')
missing=
for package in $wanted; do
	printf '%s\n' "$have" | grep -qxF "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
	echo "missing packages; as root: apt-get install --no-install-recommends$missing" >&2
	exit 1
fi

echo "installing Debian packages, which can take minutes:$missing"
log=$(mktemp)
policy=/usr/sbin/policy-rc.d
made_policy=
clean() {
	rm -f "$log"
	[ -z "$made_policy" ] || rm -f "$policy"
}
trap clean EXIT
trap 'exit 130' INT TERM

# The servers among them are for use inside sandboxes: none shall start on this machine because it was installed.
if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
	made_policy=1
fi

export DEBIAN_FRONTEND=noninteractive
apt() {
	apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" </dev/null >"$log" 2>&1
}
lists=$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' 2>/dev/null | head -n 1)
if [ -z "$lists" ]; then
	apt update || { cat "$log" >&2; exit 1; }
fi
# shellcheck disable=SC2086
if ! apt install -y --no-install-recommends $missing; then
	# The lists may be older than the archive.
	apt update || { cat "$log" >&2; exit 1; }
	# shellcheck disable=SC2086
	apt install -y --no-install-recommends $missing || { cat "$log" >&2; exit 1; }
fi
