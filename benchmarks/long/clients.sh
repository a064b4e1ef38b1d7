#!/usr/bin/env bash
# Other projects' clients against a server: what has to be installed for them is large.
set -euo pipefail
exec "$(dirname "$0")/../../ci/clients.sh"
