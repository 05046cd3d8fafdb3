#!/usr/bin/env bash
# shell.sh ROOT: every shell script parses, stops at errors, and may be run.
set -euo pipefail
cd "$1"
status=0
count=0
complain() {
  echo "$1: $2"
  status=1
}
while IFS= read -r -d '' file; do
  file="${file#./}"
  count=$((count + 1))
  bash -n "$file" || status=1
  if head -n 1 "$file" | grep -q '^#!'; then
    [ -x "$file" ] || complain "$file" "has a #! line and is not executable"
    grep -q '^set -[a-z]*e' "$file" || complain "$file" "does not stop at errors (set -euo pipefail)"
  fi
done < <(find . \( -name .git -o -name .dev -o -name node_modules \) -prune -o -type f \
  \( -name '*.sh' -o -path ./dev -o -path ./.ci/run \) -print0)
echo "shell: $count scripts"
[ "$count" -gt 0 ] || status=1
exit "$status"
