#!/usr/bin/env bash
# build.sh [--out DIR] [--tools DIR]: build.py on a machine that may lack Python. Without Python, and where it cannot be
# installed, it says NOT BUILT and ends with status 0: the links of the documents are checked by package structure too.
set -euo pipefail
ready() { command -v python3 >/dev/null && python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
if ! ready && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends python3 python3-venv; } >/dev/null || true
fi
ready || { echo "NOT BUILT: the site needs Python 3.10 or later with venv"; exit 0; }
exec python3 "$(dirname "$0")/build.py" "$@"
