# Sourced by benches that run studies, with their first argument: sets `bigiron`, the executable that it names or the one that
# `make` built; `here`, this folder; and `dir`, the folder for all files: KEEP, or a temporary one that is removed at the end.
# shellcheck shell=sh disable=SC2034
bigiron=$(realpath "$(command -v "${1:-target/x86_64-unknown-linux-musl/release/bigiron}")")
here=$(realpath "$(dirname "$0")")
dir=${KEEP:-}
if [ -z "$dir" ]; then
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
fi
mkdir -p "$dir"
dir=$(realpath "$dir")

# Prints the processor model that is nearest to this machine's processor.
nearest_model() {
	case $(awk '$1 == "vendor_id" { print $3 } $1 $2 == "cpufamily" { print $4; exit }' /proc/cpuinfo | tr '\n' ' ') in
	"GenuineIntel "*) echo icelake-like ;;
	"AuthenticAMD 23 "*) echo rome-like ;;
	*) echo turin-like ;;
	esac
}
