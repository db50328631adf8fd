# Installs packages with uv, by the hashes of a lock file. Source this file.
#   environment <venv>       makes the environment if it is missing, with uv and the build tools
#   packages <venv> <lock>   installs the packages of the lock file
# Needs Python 3.11 to 3.13. The whole log is <venv>/install.log.

# Packages such as PySpark are built by the pinned tools, without isolation. PySpark's wheel is
# unpacked at once, so it is not compressed. The hashes make any index safe.
export UV_INDEX_STRATEGY=unsafe-best-match UV_PYTHON_DOWNLOADS=never
uv_options=(--config-settings-package 'pyspark:--build-option=--compression=stored')

say() { echo "$(basename "$0"): $*"; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" .venv/bin/python python3.13 python3.12 python3.11 python3 python; do
        if [ -n "$candidate" ] && "$candidate" -c 'import sys
sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    say "no Python 3.11, 3.12 or 3.13 found. Install one, or set its path: PYTHON=... make build" >&2
    return 1
}

# uv does not read pip's settings, so pip's mirror and certificate are passed on.
take_pips_settings() {
    local name value
    while IFS='=' read -r name value; do
        value=${value#\'} value=${value%\'} value=${value#\\n}
        case "${name##*.}" in
            index-url) export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$value}" ;;
            extra-index-url) export UV_INDEX="${UV_INDEX:-${value//\\n/ }}" ;;
            find-links) export UV_FIND_LINKS="${UV_FIND_LINKS:-${value//\\n/,}}" ;;
            trusted-host) export UV_INSECURE_HOST="${UV_INSECURE_HOST:-${value//\\n/ }}" ;;
            proxy) export ALL_PROXY="${ALL_PROXY:-$value}" ;;
            cert) export SSL_CERT_FILE="${SSL_CERT_FILE:-$value}" ;;
        esac
    done < <("$1/bin/python" -m pip config list 2>/dev/null)
}

# logged <venv> <command ...>: logs the output, and prints its last line every five seconds.
logged() {
    local venv=$1 log=$1/install.log process status=0 printed=$SECONDS started=$SECONDS
    shift
    "$@" >>"$log" 2>&1 &
    process=$!
    # shellcheck disable=SC2064  # the present process id
    trap "kill $process 2>/dev/null" INT TERM
    while kill -0 "$process" 2>/dev/null; do
        sleep 0.2
        if ((SECONDS >= printed + 5)); then
            printed=$SECONDS
            say "$(tail -n 1 "$log" | cut -c -100 | sed 's/^ *//') ($((SECONDS - started)) s)"
        fi
    done
    wait "$process" || status=$?
    trap - INT TERM
    if [ "$status" -ne 0 ]; then
        tail -n 20 "$log" >&2
        say "failed; $venv is incomplete. The whole log: $log. Fix the cause, then run the command again." >&2
        exit "$status"
    fi
}

environment() {
    local venv=$1 python
    if ! "$venv/bin/python" -c '' 2>/dev/null; then
        python=$(find_python) || exit 1
        say "making $venv with $("$python" --version)"
        "$python" -m venv --clear "$venv" || {
            say "this Python cannot make a virtual environment (Debian: apt install python3-venv)" >&2
            exit 1
        }
    fi
    : >"$venv/install.log"
    take_pips_settings "$venv"
    if ! cmp -s requirements-build.lock "$venv/build.lock"; then
        # pip installs uv; uv installs all other packages.
        sed -n '/^uv==/,/[^\\]$/p' requirements-build.lock >"$venv/uv.lock"
        logged "$venv" "$venv/bin/python" -m pip --disable-pip-version-check --no-input \
            install --progress-bar off --require-hashes -r "$venv/uv.lock"
        packages "$venv" requirements-build.lock
        cp requirements-build.lock "$venv/build.lock"
    fi
}

packages() {
    local venv=$1 lock=$2
    say "installing the packages of $lock"
    echo "Looking up the packages" >>"$venv/install.log"
    logged "$venv" "$venv/bin/uv" pip install --python "$venv/bin/python" "${uv_options[@]}" \
        --no-build-isolation --require-hashes -r "$lock"
}
