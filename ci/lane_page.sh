#!/usr/bin/env bash
# The page at / in headless Chromium: Debian's packages chromium and chromium-driver, driven by Selenium.
set -euo pipefail
cd "$(dirname "$0")/.."

for program in chromium chromedriver; do
  if ! command -v "$program" >/dev/null; then
    echo "lane page: did not run, there is no $program (Debian: chromium, chromium-driver)"
    exit 0
  fi
done
. ci/environment.sh selenium
python -m pytest -q tests/page
echo "lane page: ran"
