# The six things one does here. `just ci` is what the gate runs.
fmt:
    cargo fmt --all

lint:
    cargo clippy --workspace --all-targets -- -D warnings

test:
    cargo nextest run --workspace

test-slow:
    TURNHOST_WALK_STEPS=20000000 PROPTEST_CASES=20000 cargo nextest run --workspace

schema:
    UPDATE_SCHEMAS=1 cargo nextest run -p turnhost-protocol schema

ci:
    .ci/run
