#!/usr/bin/env bash
# buf.sh CHECK ROOT BUF: one of the proto checks lint, format, breaking.
#
# breaking compares with proto/released.binpb, the contract as last released (./dev proto-release makes it).
set -euo pipefail
check="$1" root="$2" buf="$3"
[ -x "$buf" ] || { echo "buf is not installed. Run ./dev deps (npm ci in tests/node)."; exit 1; }
cd "$root"
# buf keeps a cache and must not need a home directory or a network.
export XDG_CACHE_HOME="${TMPDIR:-/tmp}/tenure-buf-cache-$(id -u)"
case "$check" in
  lint) "$buf" lint ;;
  format) "$buf" format -d --exit-code || { echo "./dev fmt formats the protos"; exit 1; } ;;
  breaking)
    "$buf" breaking --against proto/released.binpb || {
      echo "These changes break callers built against the released contract. Keep the old field and reserve what goes;"
      echo "./dev proto-release takes the present protos as released, which is right only when nobody has them yet."
      exit 1
    }
    ;;
  *) echo "buf.sh knows lint, format and breaking, not '$check'"; exit 2 ;;
esac
