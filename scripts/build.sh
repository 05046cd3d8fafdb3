# Build, test, lint, format, bench. Sourced by ./dev.

# configure PRESET
configure() {
  local preset="$1"
  [ -d "$DEV_DIR/build/$preset" ] || say "configure $preset"
  mkdir -p "$LOG_DIR"
  if ! cmake --preset "$preset" >"$LOG_DIR/configure-$preset.log" 2>&1; then
    tail -n 30 "$LOG_DIR/configure-$preset.log" >&2
    die "cmake could not configure preset '$preset' (all of its output: .dev/log/configure-$preset.log). If a package is missing run ./dev deps; after a change of compiler remove .dev/build/$preset."
  fi
}

# build_preset [PRESET] [TARGET...]
build_preset() {
  local preset="${1:-dev}"
  [ $# -gt 0 ] && shift
  case "$preset" in
    dev | release | tsan) ;;
    fuzz) have clang++ || die "preset fuzz needs clang. Run: apt-get install clang" ;;
    *) die "there is no preset '$preset'. Choose dev, release, tsan or fuzz." ;;
  esac
  configure "$preset"
  say "build $preset (-j$JOBS)"
  cmake --build --preset "$preset" -j "$JOBS" ${1:+--target "$@"} ||
    die "the build of preset '$preset' failed; the first error is above."
}

# The programs of the cluster alone, as they are deployed.
build_cluster() {
  build_preset release services/entitlement/tenure-entitlement services/webhook-ingest/tenure-webhook-ingest \
    services/scheduler/tenure-scheduler tools/tenurectl/tenurectl
}

# run_tests [CTEST ARGS]: everything, with ctest's own summary last.
run_tests() {
  build_preset dev
  say "test"
  # --output-junit is what ./dev requirements reads: the result of this very run.
  local status=0
  ctest --test-dir "$DEV_DIR/build/dev" --output-on-failure -j "$JOBS" --no-tests=error \
    --output-junit "$DEV_DIR/build/dev/ctest.xml" "$@" || status=$?
  return "$status"
}

run_lint() {
  if [ "${1:-}" = tidy ]; then
    shift
    run_tidy "$@"
    return
  fi
  configure dev
  ctest --test-dir "$DEV_DIR/build/dev" --output-on-failure -j "$JOBS" --no-tests=error -L '^lint$' ${1:+-R "$1"}
}

# run_tidy [FILES]: the files named, or those that differ from main.
run_tidy() {
  have clang-tidy || die "clang-tidy is not installed. Run: apt-get install clang-tidy"
  build_preset dev
  local files=("$@")
  if [ "${#files[@]}" -eq 0 ]; then
    mapfile -t files < <(git diff --name-only --diff-filter=d "$(git merge-base HEAD main)" -- '*.cc')
  fi
  [ "${#files[@]}" -gt 0 ] || { say "no changed .cc file"; return; }
  clang-tidy -p "$DEV_DIR/build/dev" --quiet --warnings-as-errors='*' "${files[@]}"
}

clang_format() {
  if have clang-format-14; then echo clang-format-14; else echo clang-format; fi
}

run_fmt() {
  say "format C++"
  find common services tools tests -name node_modules -prune -o \( -name '*.cc' -o -name '*.h' \) -print0 2>/dev/null |
    xargs -0 -r -n 50 "$(clang_format)" -i
  say "format protos"
  tests/node/node_modules/.bin/buf format -w --path proto/tenure
}

proto_release() {
  tests/node/node_modules/.bin/buf build -o proto/released.binpb
  say "proto/released.binpb is now the contract that buf breaking compares with; commit it with the release"
}

# run_property [N]: the properties of the fold over N histories each, in the release build.
run_property() {
  build_preset release common/domain/fold_property_test
  TENURE_PROPERTY_HISTORIES="${1:-1000000}" exec "$DEV_DIR/build/release/common/domain/fold_property_test" \
    --gtest_filter='*Property.*'
}

# run_bench [NAME] [options]: the bench program knows its benches and options; without a name it lists them.
run_bench() {
  build_cluster
  build_preset release tests/bench/tenure-bench tests/bench/tenure-bench-echo
  local bench="$DEV_DIR/build/release/tests/bench/tenure-bench"
  case "${1:-list}" in
    list | help) exec "$bench" --help ;;
    *) exec "$bench" "$@" ;;
  esac
}
