# Shared by ./dev and the scripts beside this file. Sourced, never run.

TENURE_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
DEV_DIR="$TENURE_ROOT/.dev"
RUN_DIR="$DEV_DIR/run"
LOG_DIR="$DEV_DIR/log"
SECRET_DIR="$DEV_DIR/secrets"
JOBS="${TENURE_DEV_JOBS:-$(nproc)}"

say() { printf '== %s\n' "$*"; }
warn() { printf 'dev: %s\n' "$*" >&2; }

# die SENTENCE: the sentence says what to do.
die() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command as root: directly, or through sudo.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif have sudo; then
    sudo -- "$@"
  else
    die "'$*' needs root. Run ./dev as root, or install sudo and give this user the right to use it."
  fi
}
