# The development cluster: a private PostgreSQL and the three services. Sourced by ./dev.

SERVICES=(entitlement webhook-ingest scheduler)
STOP_ORDER=(webhook-ingest scheduler entitlement)
STOP_SECONDS=25

HTTP_PORT="${TENURE_DEV_HTTP_PORT:-8080}"
INGEST_GRPC_PORT="${TENURE_DEV_INGEST_GRPC_PORT:-50052}"
ENTITLEMENT_GRPC_PORT="${TENURE_DEV_ENTITLEMENT_GRPC_PORT:-50051}"
SCHEDULER_GRPC_PORT="${TENURE_DEV_SCHEDULER_GRPC_PORT:-50053}"
ENTITLEMENT_METRICS_PORT="${TENURE_DEV_ENTITLEMENT_METRICS_PORT:-9101}"
INGEST_METRICS_PORT="${TENURE_DEV_INGEST_METRICS_PORT:-9102}"
SCHEDULER_METRICS_PORT="${TENURE_DEV_SCHEDULER_METRICS_PORT:-9103}"
PG_PORT="${TENURE_DEV_PG_PORT:-54329}"

# Two checkouts on one machine do not meet: what lies outside the checkout carries a hash of its path.
TREE_ID="$(printf '%s' "$TENURE_ROOT" | sha256sum | cut -c1-10)"
# A socket path holds at most 107 bytes, so it is not under the checkout. Nobody but the server's user may enter the
# directory: that is what makes password-free connections over it safe.
PG_SOCKET_DIR="/tmp/tenure-dev-$TREE_ID"
PG_CONNINFO="host=$PG_SOCKET_DIR port=$PG_PORT dbname=tenure user=tenure"

binary_of() {
  case "$1" in
    tenurectl) printf '%s' "$DEV_DIR/build/release/tools/tenurectl/tenurectl" ;;
    *) printf '%s' "$DEV_DIR/build/release/services/$1/tenure-$1" ;;
  esac
}

metrics_port_of() {
  case "$1" in
    entitlement) printf '%s' "$ENTITLEMENT_METRICS_PORT" ;;
    webhook-ingest) printf '%s' "$INGEST_METRICS_PORT" ;;
    scheduler) printf '%s' "$SCHEDULER_METRICS_PORT" ;;
  esac
}

# --- PostgreSQL ---------------------------------------------------------------------------------------------------

# The newest server that is installed.
pg_bin() {
  local dir
  dir="$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)"
  if [ -x "$dir/initdb" ]; then
    printf '%s' "$dir"
  elif have pg_config && [ -x "$(pg_config --bindir)/initdb" ]; then
    pg_config --bindir
  else
    die "no PostgreSQL server is installed. Run ./dev deps."
  fi
}

# PostgreSQL refuses to run as root, so root hands over to the user that the package made.
pg_user() {
  if [ "$(id -u)" -eq 0 ]; then printf postgres; else id -un; fi
}

as_pg() {
  if [ "$(id -u)" -eq 0 ]; then
    # From a directory that the user can enter, else every tool warns about it.
    (cd / && exec runuser -u postgres -- "$@")
  else
    "$@"
  fi
}

# Creates DIR for the server's user only, or refuses one that somebody else made there.
pg_private_dir() {
  local dir="$1" owner
  owner="$(pg_user)"
  if [ ! -e "$dir" ]; then
    mkdir -m 700 "$dir" && chown "$owner" "$dir"
  fi
  if [ -L "$dir" ] || [ ! -d "$dir" ] || [ "$(stat -c %U "$dir")" != "$owner" ]; then
    die "$dir exists but does not belong to $owner. Remove it and run the command again."
  fi
}

# Where the data is: .dev/pg, or outside the checkout where the server's user cannot enter it.
pg_data_dir() {
  local pointer="$DEV_DIR/pg.location" dir="$DEV_DIR/pg"
  if [ -s "$pointer" ]; then
    cat "$pointer"
    return
  fi
  mkdir -p "$DEV_DIR"
  if ! as_pg test -x "$DEV_DIR"; then
    dir="/var/tmp/tenure-dev-$TREE_ID"
    warn "user $(pg_user) cannot enter $DEV_DIR, so the database is kept in $dir (noted in .dev/pg.location)"
    printf '%s' "$dir" >"$pointer"
  fi
  printf '%s' "$dir"
}

pg_running() {
  [ -s "$1/PG_VERSION" ] 2>/dev/null || as_pg test -s "$1/PG_VERSION" || return 1
  as_pg "$(pg_bin)/pg_ctl" -D "$1" status >/dev/null 2>&1
}

pg_start() {
  local bin data
  bin="$(pg_bin)"
  data="$(pg_data_dir)"
  pg_private_dir "$data"
  pg_private_dir "$PG_SOCKET_DIR"
  if ! as_pg test -s "$data/PG_VERSION"; then
    say "postgres: new database in $data"
    as_pg "$bin/initdb" -D "$data" -U postgres -E UTF8 --locale=C.UTF-8 --auth-local=trust --auth-host=scram-sha-256 \
      >"$LOG_DIR/initdb.log" 2>&1 || {
      tail -n 5 "$LOG_DIR/initdb.log" >&2
      die "initdb failed (.dev/log/initdb.log). Is the disk full? Remove $data and run ./dev up again."
    }
  fi
  local has needs
  has="$(as_pg cat "$data/PG_VERSION")"
  needs="$("$bin/postgres" --version | sed -E 's/.* ([0-9]+)[.a-z].*/\1/')"
  [ "$has" = "$needs" ] ||
    die "the development database was made by PostgreSQL $has and the installed server is $needs. It holds nothing of value: remove $data and run ./dev up again."
  local command="port=$PG_PORT socket=$PG_SOCKET_DIR"
  if pg_running "$data"; then
    if [ "$(cat "$RUN_DIR/postgres.cmd" 2>/dev/null)" = "$command" ]; then
      say "postgres: already running on 127.0.0.1:$PG_PORT"
      return
    fi
    pg_stop
  fi
  require_port "$PG_PORT" TENURE_DEV_PG_PORT postgres
  local log="$LOG_DIR/postgres.log"
  : >>"$log"
  # The server writes through our descriptor, so the log may lie where its user cannot go.
  if ! as_pg "$bin/pg_ctl" -D "$data" -w -t 60 -s \
    -o "-c listen_addresses=127.0.0.1 -c port=$PG_PORT -c unix_socket_directories=$PG_SOCKET_DIR -c unix_socket_permissions=0777" \
    -o "-c timezone=UTC -c log_timezone=UTC -c max_connections=100 -c log_line_prefix='%m [%p] '" \
    start >>"$log" 2>&1 </dev/null; then
    tail -n 10 "$log" >&2
    die "PostgreSQL did not start; its last lines are above (.dev/log/postgres.log)."
  fi
  printf '%s' "$command" >"$RUN_DIR/postgres.cmd"
  say "postgres: started on 127.0.0.1:$PG_PORT and $PG_SOCKET_DIR"
}

pg_prepare() {
  local admin="host=$PG_SOCKET_DIR port=$PG_PORT user=postgres dbname=postgres" password
  password="$(make_secret postgres)"
  psql -X -q -v ON_ERROR_STOP=1 "$admin" <<SQL || die "could not prepare the role tenure; see .dev/log/postgres.log."
SET log_statement = 'none';
SELECT 'CREATE ROLE tenure LOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure') \gexec
ALTER ROLE tenure PASSWORD '$password';
SELECT 'CREATE DATABASE tenure OWNER tenure' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'tenure') \gexec
SQL
}

pg_stop() {
  local data
  data="$(pg_data_dir)"
  if pg_running "$data"; then
    as_pg "$(pg_bin)/pg_ctl" -D "$data" -w -t "$STOP_SECONDS" -m fast -s stop ||
      die "PostgreSQL did not stop within $STOP_SECONDS s; see .dev/log/postgres.log."
    say "postgres: stopped"
  fi
  rm -f "$RUN_DIR/postgres.cmd"
  [ ! -d "$PG_SOCKET_DIR" ] || rmdir --ignore-fail-on-non-empty "$PG_SOCKET_DIR"
}

# --- secrets and ports --------------------------------------------------------------------------------------------

# make_secret NAME [PREFIX]: prints .dev/secrets/NAME, made once, readable by this user only.
make_secret() {
  local file="$SECRET_DIR/$1"
  if [ ! -s "$file" ]; then
    mkdir -p "$SECRET_DIR" && chmod 700 "$SECRET_DIR"
    (umask 077 && printf '%s%s' "${2:-}" "$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')" >"$file")
  fi
  cat "$file"
}

port_free() {
  python3 -c '
import socket, sys
with socket.socket() as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind(("127.0.0.1", int(sys.argv[1])))
    except OSError:
        sys.exit(1)' "$1"
}

# require_port PORT VARIABLE WHO
require_port() {
  [[ "$1" =~ ^[0-9]{1,5}$ ]] && [ "$1" -ge 1 ] && [ "$1" -le 65535 ] || die "$2 is '$1', which is not a port (1 to 65535)."
  port_free "$1" || die "port $1, wanted by $3, is in use (or may not be opened by this user). Stop what listens there, or choose another with $2=PORT ./dev up."
}

require_service_ports() {
  case "$1" in
    entitlement)
      require_port "$ENTITLEMENT_GRPC_PORT" TENURE_DEV_ENTITLEMENT_GRPC_PORT "entitlement (gRPC)"
      require_port "$ENTITLEMENT_METRICS_PORT" TENURE_DEV_ENTITLEMENT_METRICS_PORT "entitlement (metrics)"
      ;;
    webhook-ingest)
      require_port "$HTTP_PORT" TENURE_DEV_HTTP_PORT "webhook-ingest (HTTP)"
      require_port "$INGEST_GRPC_PORT" TENURE_DEV_INGEST_GRPC_PORT "webhook-ingest (gRPC)"
      require_port "$INGEST_METRICS_PORT" TENURE_DEV_INGEST_METRICS_PORT "webhook-ingest (metrics)"
      ;;
    scheduler)
      require_port "$SCHEDULER_GRPC_PORT" TENURE_DEV_SCHEDULER_GRPC_PORT "scheduler (gRPC)"
      require_port "$SCHEDULER_METRICS_PORT" TENURE_DEV_SCHEDULER_METRICS_PORT "scheduler (metrics)"
      ;;
  esac
}

# --- services -----------------------------------------------------------------------------------------------------

# Prints the pid of a service that we started and that still is that program (a pid may be handed out again). It is told
# by the command line: once the binary was rebuilt, /proc/PID/exe shows a deleted file, by the linker's temporary name.
service_pid() {
  local pid program
  pid="$(cat "$RUN_DIR/$1.pid" 2>/dev/null)" || return 1
  [[ "$pid" =~ ^[0-9]+$ ]] || return 1
  IFS= read -r -d '' program 2>/dev/null <"/proc/$pid/cmdline" || return 1
  [ "$program" = "$(binary_of "$1")" ] || return 1
  printf '%s' "$pid"
}

# Whether the process that was started is gone, or a corpse that nobody has waited for yet.
service_ended() {
  local pid state
  pid="$(cat "$RUN_DIR/$1.pid" 2>/dev/null)" || return 0
  state="$(sed -E 's/^.*\) (.).*/\1/' "/proc/$pid/stat" 2>/dev/null)" || return 0
  [ -z "$state" ] || [ "$state" = Z ] || [ "$state" = X ]
}

service_args() {
  printf '%s\n' "--config=deploy/dev/$1.yaml" "--database_conninfo=$PG_CONNINFO"
  case "$1" in
    entitlement)
      printf '%s\n' "--grpc_listen=127.0.0.1:$ENTITLEMENT_GRPC_PORT" "--metrics_listen=127.0.0.1:$ENTITLEMENT_METRICS_PORT"
      ;;
    webhook-ingest)
      printf '%s\n' "--http_listen=127.0.0.1:$HTTP_PORT" "--grpc_listen=127.0.0.1:$INGEST_GRPC_PORT" \
        "--metrics_listen=127.0.0.1:$INGEST_METRICS_PORT"
      ;;
    scheduler)
      printf '%s\n' "--grpc_listen=127.0.0.1:$SCHEDULER_GRPC_PORT" "--metrics_listen=127.0.0.1:$SCHEDULER_METRICS_PORT"
      ;;
  esac
}

service_start() {
  local name="$1" binary args command pid
  binary="$(binary_of "$name")"
  [ -x "$binary" ] || die "$binary was not built. Run ./dev build release."
  mapfile -t args < <(service_args "$name")
  # What would make the running process a different one: its flags, its file, its program.
  command="${args[*]} $(sha256sum "deploy/dev/$name.yaml" "$binary" | cut -d' ' -f1 | tr '\n' ' ')"
  if pid="$(service_pid "$name")"; then
    if [ "$(cat "$RUN_DIR/$name.cmd" 2>/dev/null)" = "$command" ]; then
      say "$name: already running (pid $pid)"
      return
    fi
    service_stop "$name"
  fi
  require_service_ports "$name"
  # A session of its own, so that Ctrl-C in this terminal stops the services in order and not all at once.
  # Settings by TENURE_... reach the service; what is meant for ./dev would only make it warn.
  local clean=(env) variable
  for variable in $(compgen -e TENURE_DEV_ || true) $(compgen -e TENURE_DEMO_ || true); do clean+=(-u "$variable"); done
  setsid "${clean[@]}" "$binary" "${args[@]}" </dev/null >>"$LOG_DIR/$name.log" 2>&1 &
  pid=$!
  printf '%s' "$pid" >"$RUN_DIR/$name.pid"
  printf '%s' "$command" >"$RUN_DIR/$name.cmd"
  say "$name: started (pid $pid)"
}

service_wait_ready() {
  local name="$1" url deadline
  url="http://127.0.0.1:$(metrics_port_of "$name")/readyz"
  deadline=$((SECONDS + 30))
  until curl --noproxy '*' -fsS -o /dev/null --max-time 2 "$url" 2>/dev/null; do
    if service_ended "$name"; then
      tail -n 20 "$LOG_DIR/$name.log" >&2
      die "$name ended while starting; its last lines are above (.dev/log/$name.log)."
    fi
    if [ "$SECONDS" -ge "$deadline" ]; then
      curl --noproxy '*' -sS --max-time 2 "$url" >&2 || true
      tail -n 20 "$LOG_DIR/$name.log" >&2
      die "$name is not ready after 30 s ($url); its last lines are above (.dev/log/$name.log)."
    fi
    sleep 0.1
  done
  say "$name: ready"
}

service_stop() {
  local name="$1" pid deadline
  if ! pid="$(service_pid "$name")"; then
    rm -f "$RUN_DIR/$name.pid" "$RUN_DIR/$name.cmd"
    return
  fi
  # The demo may have left it stopped; a stopped process cannot end.
  kill -CONT "$pid" 2>/dev/null || true
  kill -TERM "$pid" 2>/dev/null || true
  deadline=$((SECONDS + STOP_SECONDS))
  while service_pid "$name" >/dev/null; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      warn "$name (pid $pid) did not end within $STOP_SECONDS s and is killed; see .dev/log/$name.log"
      kill -KILL "$pid" 2>/dev/null || true
      break
    fi
    sleep 0.1
  done
  rm -f "$RUN_DIR/$name.pid" "$RUN_DIR/$name.cmd"
  say "$name: stopped"
}

# --- commands -----------------------------------------------------------------------------------------------------

cluster_up() {
  local detach=false arg name
  for arg in "$@"; do
    case "$arg" in
      --detach | -d) detach=true ;;
      *) die "up does not know '$arg'. It takes only --detach." ;;
    esac
  done
  deps_install build
  build_cluster
  mkdir -p "$RUN_DIR" "$LOG_DIR"
  make_secret stripe whsec_ >/dev/null
  if ! $detach; then
    trap 'cluster_interrupted' INT TERM HUP
    trap 'cluster_exit' EXIT
  else
    trap 'cluster_detach_failed' EXIT
  fi
  pg_start
  pg_prepare
  say "migrate"
  "$(binary_of tenurectl)" migrate up --conninfo="$PG_CONNINFO" ||
    die "the migration failed; the sentence above says why. A development database holds nothing of value: ./dev down, remove $(pg_data_dir), ./dev up."
  for name in "${SERVICES[@]}"; do service_start "$name"; done
  for name in "${SERVICES[@]}"; do service_wait_ready "$name"; done
  cluster_state
  cluster_demo
  cluster_addresses
  if $detach; then
    trap - EXIT
    say "running in the background; ./dev logs shows them, ./dev down stops them"
    return
  fi
  say "running; Ctrl-C stops everything"
  follow_logs 0 "${SERVICES[@]}" postgres &
  FOLLOW_PID=$!
  # A service that ends by itself ends the whole, loudly.
  while true; do
    for name in "${SERVICES[@]}"; do
      service_pid "$name" >/dev/null && continue
      if [ ! -e "$RUN_DIR/state.env" ]; then
        say "stopped by ./dev down"
        exit 0
      fi
      die "$name ended by itself; see .dev/log/$name.log. Stopping the rest."
    done
    sleep 1
  done
}

cluster_detach_failed() {
  local status=$?
  [ "$status" -eq 0 ] || warn "what was started still runs: ./dev logs shows why, ./dev down stops it"
}

cluster_interrupted() {
  printf '\n'
  exit 130
}

cluster_exit() {
  local status=$?
  trap '' INT TERM HUP
  trap - EXIT
  if [ -n "${FOLLOW_PID:-}" ]; then
    kill -TERM "$FOLLOW_PID" 2>/dev/null || true
    wait "$FOLLOW_PID" 2>/dev/null || true
  fi
  cluster_down || true
  # Ctrl-C is how `up` is meant to end.
  [ "$status" -eq 130 ] && status=0
  exit "$status"
}

cluster_down() {
  local name
  mkdir -p "$RUN_DIR" "$LOG_DIR"
  rm -f "$RUN_DIR/state.env"
  for name in "${STOP_ORDER[@]}"; do service_stop "$name"; done
  pg_stop
  say "down"
}

# What ./dev demo, psql and logs need to know about the running cluster, whatever the environment says now.
cluster_state() {
  cat >"$RUN_DIR/state.env" <<STATE
TENURE_DEMO_HTTP=http://127.0.0.1:$HTTP_PORT
TENURE_DEMO_ENTITLEMENT=127.0.0.1:$ENTITLEMENT_GRPC_PORT
TENURE_DEMO_INGEST=127.0.0.1:$INGEST_GRPC_PORT
TENURE_DEMO_SCHEDULER=127.0.0.1:$SCHEDULER_GRPC_PORT
TENURE_DEMO_SCHEDULER_PID=$(cat "$RUN_DIR/scheduler.pid")
TENURE_DEMO_CONNINFO=$PG_CONNINFO
TENURE_DEMO_TENURECTL=$(binary_of tenurectl)
TENURE_DEMO_SECRET_FILE=$SECRET_DIR/stripe
TENURE_DEMO_CATALOG=$TENURE_ROOT/deploy/dev/catalog.yaml
STATE
}

cluster_addresses() {
  cat <<TEXT

  webhooks       http://127.0.0.1:$HTTP_PORT/v1/webhooks/stripe     (signing secret: .dev/secrets/stripe)
  Check          127.0.0.1:$ENTITLEMENT_GRPC_PORT  tenure.entitlement.v1.Entitlement
  Subscriptions  127.0.0.1:$INGEST_GRPC_PORT  tenure.subscription.v1.Subscriptions, tenure.webhook.v1.WebhookIngest
  jobs           127.0.0.1:$SCHEDULER_GRPC_PORT  tenure.scheduler.v1.SchedulerAdmin
  metrics        http://127.0.0.1:$ENTITLEMENT_METRICS_PORT/metrics (entitlement), :$INGEST_METRICS_PORT (webhook-ingest), :$SCHEDULER_METRICS_PORT (scheduler)
  database       ./dev psql    or 127.0.0.1:$PG_PORT, user tenure, password in .dev/secrets/postgres

TEXT
}

cluster_demo() {
  if [ -s "$RUN_DIR/state.env" ]; then
    python3 scripts/demo.py --state "$RUN_DIR/state.env" "$@"
  else
    die "no cluster is running from this checkout. Start one with ./dev up --detach."
  fi
}

cluster_psql() {
  local conninfo
  conninfo="$(sed -n 's/^TENURE_DEMO_CONNINFO=//p' "$RUN_DIR/state.env" 2>/dev/null)" || true
  [ -n "$conninfo" ] || die "no cluster is running from this checkout. Start one with ./dev up --detach."
  exec psql "$conninfo" "$@"
}

# follow_logs LINES NAME...: each line behind its service's name, until stopped.
follow_logs() {
  local lines="$1" name files=()
  shift
  for name in "$@"; do
    : >>"$LOG_DIR/$name.log"
    files+=("$LOG_DIR/$name.log")
  done
  exec python3 scripts/follow_logs.py --lines "$lines" "${files[@]}"
}

cluster_logs() {
  local names=("${SERVICES[@]}" postgres)
  if [ $# -gt 0 ]; then
    case " ${names[*]} " in
      *" $1 "*) names=("$1") ;;
      *) die "there is no log '$1'. Choose one of: ${names[*]}." ;;
    esac
  fi
  mkdir -p "$LOG_DIR"
  follow_logs 50 "${names[@]}"
}
