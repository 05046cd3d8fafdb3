#!/usr/bin/env bash
# Shows that a bare Debian is enough: makes a minimal one in DIR, clones this checkout into it, and runs the promised
# commands there with nothing else installed by hand.
#
#   scripts/bare-debian.sh DIR [COMMAND]
#
# COMMAND is run by bash in the clone; by default it is up, demo, down and test. An existing DIR is used again.
# Environment: BARE_SUITE (bookworm), BARE_MIRROR (default: what this machine's apt uses for that suite).
# Needs root, debootstrap and the right to mount. Proxy, npm_config_* and TENURE_DEV_* variables are passed on, and so
# are CA files named by NODE_EXTRA_CA_CERTS, SSL_CERT_FILE or CURL_CA_BUNDLE.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ $# -ge 1 ] || die "usage: scripts/bare-debian.sh DIR [COMMAND]"
mkdir -p "$1"
target="$(cd "$1" && pwd -P)"
command="${2:-./dev up --detach && ./dev demo && ./dev down && ./dev test}"
suite="${BARE_SUITE:-bookworm}"
[ "$(id -u)" -eq 0 ] || die "scripts/bare-debian.sh makes a root file system and mounts. Run it as root."
[ "$target" != / ] || die "DIR is /. Name a directory for the new system."
have debootstrap || die "debootstrap is not installed. Run: apt-get install debootstrap"

mirror_of_host() {
  {
    sed -nE "s/^deb( \[[^]]*\])? +([^ ]+) +$suite .*/\2/p" /etc/apt/sources.list /etc/apt/sources.list.d/*.list
    awk -v suite="$suite" '
      /^URIs:/ { uri = $2 }
      /^Suites:/ { for (i = 2; i <= NF; i++) if ($i == suite) print uri }' /etc/apt/sources.list.d/*.sources
  } 2>/dev/null | head -n 1 || true
}
mirror="${BARE_MIRROR:-$(mirror_of_host)}"
[ -n "$mirror" ] || die "this machine's apt names no mirror of $suite. Name one: BARE_MIRROR=URL scripts/bare-debian.sh DIR"

if [ ! -e "$target/etc/debian_version" ]; then
  say "debootstrap $suite (minbase) from $mirror"
  debootstrap --variant=minbase "$suite" "$target" "$mirror" >"$target.debootstrap.log" 2>&1 || {
    tail -n 15 "$target.debootstrap.log" >&2
    die "debootstrap failed ($target.debootstrap.log). Choose another mirror with BARE_MIRROR=URL."
  }
fi
cp /etc/resolv.conf /etc/hosts "$target/etc/" 2>/dev/null || true

passed=()
while IFS='=' read -r -d '' name value; do
  case "$name" in
    http_proxy | https_proxy | no_proxy | HTTP_PROXY | HTTPS_PROXY | NO_PROXY | npm_config_* | NPM_CONFIG_* | TENURE_DEV_*)
      passed+=("$name=$value")
      ;;
    NODE_EXTRA_CA_CERTS | SSL_CERT_FILE | CURL_CA_BUNDLE)
      if [ -r "$value" ]; then
        # The package ca-certificates writes its own file later; a name of its own is not overwritten by it.
        cp -L "$value" "$target/opt/extra-ca.pem"
        passed+=("$name=/opt/extra-ca.pem")
      fi
      ;;
  esac
done < <(env -0)

say "clone the checkout (committed state) into $target/src/tenure"
rm -rf "$target/src/tenure"
mkdir -p "$target/src"
git clone -q --no-hardlinks "$TENURE_ROOT" "$target/src/tenure"

say "inside: $command"
export target command
# A mount and a process namespace of its own: whatever is left at the end goes with it.
exec unshare --mount --pid --fork bash -euc '
  mount --make-rprivate /
  mount -t proc proc "$target/proc"
  mount --rbind /sys "$target/sys"
  mount --rbind /dev "$target/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$target/dev/shm"
  exec chroot "$target" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/root LANG=C.UTF-8 CI=true "$@" bash -c "cd /src/tenure && $command" </dev/null
' bare-debian "${passed[@]}"
