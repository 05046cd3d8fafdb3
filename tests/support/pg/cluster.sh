#!/usr/bin/env bash
# A private PostgreSQL for one test run, with a migrated template database.
#
#   cluster.sh start DIR [--migrator=PROGRAM] [--sql=FILE]
#   cluster.sh stop DIR
#   cluster.sh run [--migrator=PROGRAM] [--sql=FILE]
#   cluster.sh crash DIR | shutdown DIR | restart DIR | freeze DIR | thaw DIR
#
# start  makes a cluster, starts its server on 127.0.0.1 (a free port) and on a
#        unix socket, creates the database tenure_template and writes DIR/env
#        (KEY='value' lines). A server that an interrupted run left behind DIR
#        is stopped first: one test run per DIR at a time.
# stop   stops exactly the server that DIR/env names and removes its files. The
#        server's log stays as DIR/server.log. Fine to repeat.
# run    start in a directory of its own, print "ready DIR", and stop when
#        standard input ends: the cluster cannot outlive the process that holds
#        the other end, however that process dies.
#
# What can happen to the server of DIR, for tests that own one:
# crash     every process ends at once; the next start recovers from the log
# shutdown  an orderly stop that ends the sessions
# restart   starts it again on the same port, and waits until it answers
# freeze    stops every process where it stands (SIGSTOP): connections stay open
#           and nothing answers
# thaw      lets them go on; fine to repeat
#
# The template is filled by `PROGRAM migrate up --conninfo=...`, then by FILE.
#
# The cluster's files live in a short directory directly under /tmp, not in DIR:
# a socket path is limited to 107 bytes, and as root the server runs as another
# user, who may not be able to reach a checkout in somebody's home.
set -euo pipefail

die() {
  echo "cluster.sh: $*" >&2
  exit 1
}

# Prints the binary directory of the newest installed server, 15 or later.
find_bindir() {
  local best="" best_major=0 bin version major
  for bin in "$(pg_config --bindir 2>/dev/null || true)" \
      /usr/lib/postgresql/*/bin /usr/pgsql-*/bin; do
    [[ -n "$bin" && -x "$bin/initdb" && -x "$bin/postgres" ]] || continue
    version=$("$bin/postgres" --version) || continue
    [[ "$version" =~ ([0-9]+) ]] || continue
    major=${BASH_REMATCH[1]}
    if ((major > best_major)); then
      best=$bin best_major=$major
    fi
  done
  ((best_major >= 15)) || die "no PostgreSQL server 15 or newer was found." \
    "Install it first: ./dev deps"
  echo "$best"
}

# The user that runs the server: PostgreSQL refuses to run as root.
server_user() {
  if [[ $(id -u) != 0 ]]; then
    id -un
  elif id postgres >/dev/null 2>&1; then
    echo postgres
  elif id nobody >/dev/null 2>&1; then
    echo nobody
  else
    die "running as root, and there is no user postgres or nobody to run the" \
      "server as. Install PostgreSQL first: ./dev deps"
  fi
}

# Runs a command as the server's user, from a directory that user can enter.
as_server() {
  local user=$1
  shift
  if [[ $(id -u) == 0 ]]; then
    (cd / && exec setpriv --reuid="$user" --regid="$(id -g "$user")" \
      --clear-groups env HOME=/ "$@")
  else
    (cd / && exec "$@")
  fi
}

# Sends a signal to the postmaster of a cluster, then to its children: a stopped
# postmaster starts no new ones meanwhile.
signal_server() {
  local base=$1 signal=$2 postmaster
  postmaster=$(head -n 1 "$base/data/postmaster.pid") || return 1
  kill -s "$signal" "$postmaster"
  local children
  read -r -a children <"/proc/$postmaster/task/$postmaster/children" || true
  ((${#children[@]})) || return 0
  # One that ended a moment ago is none to miss.
  kill -s "$signal" "${children[@]}" || true
}

stop_base() {
  local base=$1 bindir=$2 user=$3
  [[ "$base" == /tmp/tenure-pg.* && -d "$base" ]] || return 0
  if [[ -s "$base/data/postmaster.pid" ]]; then
    # A frozen server hears nothing.
    signal_server "$base" CONT 2>/dev/null || true
    # Nothing of this cluster is kept, so there is nothing to shut down cleanly.
    as_server "$user" "$bindir/pg_ctl" stop -D "$base/data" -m immediate -w \
      -t 30 >/dev/null 2>&1 || true
  fi
  rm -rf -- "$base"
}

stop_cluster() {
  local dir=$1
  [[ -f "$dir/env" ]] || return 0
  local TENURE_PG_BASE="" TENURE_PG_BINDIR="" TENURE_PG_OS_USER=""
  # shellcheck disable=SC1091
  source "$dir/env"
  if [[ -f "$TENURE_PG_BASE/log" ]]; then
    cp -- "$TENURE_PG_BASE/log" "$dir/server.log" || true
  fi
  stop_base "$TENURE_PG_BASE" "$TENURE_PG_BINDIR" "$TENURE_PG_OS_USER"
  rm -f -- "$dir/env"
}

# One of the commands that act on a running server.
disturb() {
  local command=$1 dir=$2
  [[ -f "$dir/env" ]] || die "$dir/env is missing: no server runs there."
  local TENURE_PG_BASE="" TENURE_PG_BINDIR="" TENURE_PG_OS_USER="" TENURE_PG_PORT=""
  # shellcheck disable=SC1091
  source "$dir/env"
  local pg_ctl=(as_server "$TENURE_PG_OS_USER" "$TENURE_PG_BINDIR/pg_ctl"
    -D "$TENURE_PG_BASE/data" -w -t 60)
  case "$command" in
    crash) "${pg_ctl[@]}" stop -m immediate >/dev/null ;;
    shutdown) "${pg_ctl[@]}" stop -m fast >/dev/null ;;
    restart)
      "${pg_ctl[@]}" start -l "$TENURE_PG_BASE/log" -o "-p $TENURE_PG_PORT" \
        >/dev/null
      ;;
    freeze) signal_server "$TENURE_PG_BASE" STOP ;;
    thaw) signal_server "$TENURE_PG_BASE" CONT ;;
  esac
}

start_cluster() {
  local dir=$1 migrator=$2 sql=$3
  local bindir user base port="" attempt conninfo
  bindir=$(find_bindir)
  user=$(server_user)
  if [[ -n "$migrator" && ! -x "$migrator" ]]; then
    die "$migrator, which migrates the template database, is not built."
  fi
  mkdir -p -- "$dir"
  stop_cluster "$dir"

  base=$(mktemp -d /tmp/tenure-pg.XXXXXX)
  # shellcheck disable=SC2064
  trap "stop_base '$base' '$bindir' '$user'" EXIT
  if [[ $(id -u) == 0 ]]; then
    chown "$user:$(id -g "$user")" "$base"
  fi
  as_server "$user" "$bindir/initdb" -D "$base/data" -U postgres -A trust \
    -E UTF8 --locale=C.UTF-8 --no-sync >"$base/initdb.log" 2>&1 ||
    die "initdb failed: $(tail -n 5 "$base/initdb.log")"
  # synchronous_commit stays on: the order of commit and reply is what tests
  # look at. fsync only matters when the machine itself goes down.
  cat >>"$base/data/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
unix_socket_directories = '$base'
fsync = off
synchronous_commit = on
max_connections = 300
shared_buffers = 64MB
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %d '
CONF
  # Ports below the range the kernel hands out for outgoing connections. The
  # server itself says whether one is free, so there is no gap to lose it in.
  for attempt in 1 2 3 4 5 6 7 8 9 10; do
    port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
    : >"$base/log"
    [[ $(id -u) != 0 ]] || chown "$user" "$base/log"
    if as_server "$user" "$bindir/pg_ctl" start -D "$base/data" -w -t 60 \
        -l "$base/log" -o "-p $port" >/dev/null 2>&1; then
      break
    fi
    if ! grep -q "Address already in use" "$base/log" || ((attempt == 10)); then
      die "the server did not start: $(tail -n 5 "$base/log")"
    fi
  done

  conninfo="host=127.0.0.1 port=$port user=postgres sslmode=disable"
  conninfo+=" gssencmode=disable"
  local psql=("$bindir/psql" -X -q -v ON_ERROR_STOP=1)
  "${psql[@]}" -d "$conninfo dbname=postgres" \
    -c "CREATE DATABASE tenure_template"
  if [[ -n "$migrator" ]]; then
    "$migrator" migrate up --conninfo="$conninfo dbname=tenure_template" \
      >"$base/migrate.log" 2>&1 ||
      die "migrating the template failed: $(tail -n 20 "$base/migrate.log")"
  fi
  if [[ -n "$sql" ]]; then
    "${psql[@]}" -d "$conninfo dbname=tenure_template" -f "$sql"
  fi
  # Nobody can connect to it from now on, so a clone never finds it in use.
  "${psql[@]}" -d "$conninfo dbname=postgres" -c \
    "ALTER DATABASE tenure_template IS_TEMPLATE true ALLOW_CONNECTIONS false"

  cat >"$dir/env.new" <<ENV
TENURE_PG_HOST='127.0.0.1'
TENURE_PG_PORT='$port'
TENURE_PG_SOCKET_DIR='$base'
TENURE_PG_USER='postgres'
TENURE_PG_CONNINFO='$conninfo dbname=postgres'
TENURE_PG_LOG='$base/log'
TENURE_PG_BASE='$base'
TENURE_PG_BINDIR='$bindir'
TENURE_PG_OS_USER='$user'
ENV
  mv -- "$dir/env.new" "$dir/env"
  trap - EXIT
}

main() {
  local command=${1:-} dir="" migrator="" sql=""
  shift || true
  case "$command" in
    start | stop | crash | shutdown | restart | freeze | thaw)
      [[ $# -ge 1 && "$1" != --* ]] || die "$command needs a directory."
      dir=$1
      shift
      ;;
    run) ;;
    *) die "usage: cluster.sh start DIR | stop DIR | run |" \
      "crash DIR | shutdown DIR | restart DIR | freeze DIR | thaw DIR" ;;
  esac
  while (($#)); do
    case "$1" in
      --migrator=*) migrator=${1#*=} ;;
      --sql=*) sql=${1#*=} ;;
      *) die "unknown argument: $1" ;;
    esac
    shift
  done
  case "$command" in
    start) start_cluster "$dir" "$migrator" "$sql" ;;
    stop) stop_cluster "$dir" ;;
    crash | shutdown | restart | freeze | thaw) disturb "$command" "$dir" ;;
    run)
      dir=$(mktemp -d /tmp/tenure-pgrun.XXXXXX)
      # shellcheck disable=SC2064
      trap "rm -rf -- '$dir'" EXIT
      (start_cluster "$dir" "$migrator" "$sql") </dev/null
      # From here the server exists, so every way out of this process stops it.
      # shellcheck disable=SC2064
      trap "stop_cluster '$dir'; rm -rf -- '$dir'" EXIT
      trap 'exit 143' TERM
      trap '' INT HUP PIPE
      echo "ready $dir"
      cat >/dev/null
      ;;
  esac
}

main "$@"
