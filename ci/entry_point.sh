# Sourced at the root of the repository, with the name of a platform: makes the folder $site, which holds the platform's
# entry point for PYTHONPATH without an installation, and is deleted when the lane ends.
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
mkdir "$site/anychip_$1-0.dist-info"
printf 'Metadata-Version: 2.1\nName: anychip-%s\nVersion: 0\n' "$1" > "$site/anychip_$1-0.dist-info/METADATA"
printf '[anychip]\n%s = anychip_%s\n' "$1" "$1" > "$site/anychip_$1-0.dist-info/entry_points.txt"
