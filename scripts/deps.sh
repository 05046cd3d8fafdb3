# Installs what the build, the cluster and the tests need. Sourced by ./dev.

# What `./dev build` and `./dev up` need. Each line names what asks for it.
BUILD_PACKAGES=(
  g++ make cmake ninja-build pkgconf      # the build itself
  ccache mold                             # faster rebuilds and links; used when installed
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  libpqxx-dev libpq-dev
  prometheus-cpp-dev
  libboost-dev                            # Beast and Asio, headers only
  nlohmann-json3-dev libyaml-cpp-dev libcli11-dev libssl-dev
  libgtest-dev libgmock-dev librapidcheck-dev
  postgresql                              # the private server of `up` and of the tests
  python3                                 # demo, lint and the reports
  curl ca-certificates tzdata git
)
# What `./dev test`, `./dev lint` and `./dev fmt` need on top.
TEST_PACKAGES=(clang-format)

deps_missing() {
  local package status
  for package in "$@"; do
    status="$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)"
    [ "$status" = installed ] || printf '%s\n' "$package"
  done
}

# Node and npm may come from the distribution or from the user; only the commands count.
deps_node_packages() {
  have node || printf 'nodejs\n'
  have npm || printf 'npm\n'
}

# deps_apt build|all
deps_apt() {
  have dpkg-query && have apt-get ||
    die "this is not a Debian or Ubuntu system (no apt-get). Install the packages listed in scripts/deps.sh by hand."
  local wanted=("${BUILD_PACKAGES[@]}")
  [ "$1" = all ] && wanted+=("${TEST_PACKAGES[@]}")
  local missing
  mapfile -t missing < <(deps_missing "${wanted[@]}"; [ "$1" = all ] && deps_node_packages)
  if [ "${#missing[@]}" -eq 0 ]; then
    say "packages: all installed"
    return
  fi
  say "packages: installing ${#missing[@]}: ${missing[*]}"
  # Debian's postgresql package starts a server on port 5432 by default. Tenure starts its own; a cluster that the
  # machine already has stays as it is.
  if [ -z "$(deps_missing postgresql-common)" ] || [ -e /etc/postgresql-common/createcluster.conf ]; then
    :
  else
    as_root mkdir -p /etc/postgresql-common
    printf 'create_main_cluster = false\n' | as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
  fi
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300
             -o Dpkg::Options::=--force-confold)
  as_root "${apt[@]}" update ||
    die "apt-get update failed. Check the network and /etc/apt/sources.list, then run ./dev deps again."
  # A name that this distribution does not have must not stop the others; what really needs it says so by itself.
  local known=() package
  for package in "${missing[@]}"; do
    if apt-cache show "$package" >/dev/null 2>&1; then
      known+=("$package")
    else
      warn "this distribution has no package $package (Debian 12 has); going on without it"
    fi
  done
  missing=("${known[@]}")
  [ "${#missing[@]}" -gt 0 ] || return 0
  as_root "${apt[@]}" install --no-install-recommends "${missing[@]}" ||
    die "apt-get could not install the packages above. Repair what it names (often: apt-get -f install), then run ./dev deps again."
  mapfile -t missing < <(deps_missing "${known[@]}")
  [ "${#missing[@]}" -eq 0 ] || die "still not installed after apt-get: ${missing[*]}. Install them by hand and run ./dev deps again."
}

# The npm packages of tests/node: buf for the proto checks, Stripe's own library for the signature tests.
deps_npm() {
  local dir="$TENURE_ROOT/tests/node" stamp
  stamp="$(sha256sum <"$dir/package-lock.json") $(node --version)"
  if [ "$(cat "$dir/node_modules/.tenure-stamp" 2>/dev/null)" = "$stamp" ] && [ -x "$dir/node_modules/.bin/buf" ]; then
    say "npm packages: all installed"
    return
  fi
  say "npm packages: npm ci in tests/node"
  (cd "$dir" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) ||
    die "npm ci failed in tests/node. It needs the npm registry: check the network, a proxy (npm config get proxy) or your own registry (npm_config_registry=...), then run ./dev deps again. Only lint and the signature vectors need it."
  [ -x "$dir/node_modules/.bin/buf" ] ||
    die "npm ci left no tests/node/node_modules/.bin/buf. Remove tests/node/node_modules and run ./dev deps again."
  printf '%s' "$stamp" >"$dir/node_modules/.tenure-stamp"
}

# deps_install build|all
deps_install() {
  deps_apt "$1"
  if [ "$1" = all ]; then
    deps_npm
  fi
}
