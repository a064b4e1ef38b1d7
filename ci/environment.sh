# Sourced by lanes, with package names: `python` has anychip, the tests' packages and these afterwards.
# The current environment is taken if it has them all, else .venv-lanes, which is made once.
modules=$(printf ', %s' anychip_api pytest "$@" | tr - _)
if ! python -c "import anychip$modules" 2>/dev/null; then
  [ -d .venv-lanes ] || python3 -m venv .venv-lanes
  . .venv-lanes/bin/activate
  pip install -q -c ci/constraints.txt -e '.[test]' "$@"
fi
