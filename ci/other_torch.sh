# Sourced at the root of the repository by ci/NAME.sh, with NAME and its arguments: environments whose PyTorch is not the
# one of ci/constraints.txt. Prints their folder $kept in the user's cache, named after what decides its content, and ends
# the script where only that was asked (`where`) or all is there; else `environment FOLDER PACKAGE..` makes one of them.
kept=${XDG_CACHE_HOME:-$HOME/.cache}/anychip-ci/$1-$(cat "ci/$1.sh" ci/other_torch.sh ci/constraints.txt | sha256sum | cut -c -16)
echo "$kept"
[ "${2:-}" = where ] && exit 0
[ -e "$kept/ready" ] && exit 0
rm -rf "${kept%/*}/$1"-*  # those of older versions too

mkdir -p "$kept"
grep -v '^torch==' ci/constraints.txt > "$kept/constraints.txt"
packages=$(python3 - <<'PYTHON'
import re, tomllib
names = [re.match(r"[\w.-]+", line).group() for line in tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]]
print(*(name for name in names if name != "torch"), "pytest", "pytest-timeout", "hypothesis", "httpx", "setuptools")
PYTHON
)

environment() {
  python3 -m venv "$kept/$1"
  # shellcheck disable=SC2086  # a list of words
  "$kept/$1/bin/pip" install -q --no-cache-dir -c "$kept/constraints.txt" "${@:2}" $packages
}
