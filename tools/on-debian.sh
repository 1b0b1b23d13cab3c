#!/usr/bin/env bash
# Runs a command in a new clone, in a Debian of its own.
#
#   tools/on-debian.sh 12|13 [COMMAND]       tools/on-debian.sh 13 "./run test"; ./run mnist unless one is given
#
# The Debian's packages and what was built there stay in the cache folder. The sources are a clone of what is committed
# here. All processes that the command starts end with the command.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

[[ ${1:-} != @(-h|--help) ]] || usage
release=${1:-} command=${2:-./run mnist} settings=()
declare -A names=([12]=bookworm [13]=trixie)
[[ -n ${names[$release]:-} ]] || die "on-debian: which release: 12 or 13?"
# In a user's own namespace apt could not become the users that it owns files as.
((EUID == 0)) || die "on-debian: chroot needs root: sudo tools/on-debian.sh $release"
ensure_packages "debootstrap           Debian in a folder
git                   makes a clone of the sources"
place=$(cache_dir)/debian-$release
if [[ ! -e $place/whole ]]; then
  say "installing Debian $release in $place"
  rm -rf "$place"
  mkdir -p "$place"
  debootstrap --variant=minbase "${names[$release]}" "$place/root" >&2 || die "on-debian: debootstrap failed"
  touch "$place/whole"
fi
cp /etc/resolv.conf "$place/root/etc/"
rm -rf "$place/root/root/gradus"
git clone --quiet "$root" "$place/root/root/gradus"
for variable in http_proxy https_proxy HTTP_PROXY HTTPS_PROXY no_proxy; do
  [[ -z ${!variable:-} ]] || settings+=("$variable=${!variable}")
done
# shellcheck disable=SC2016  # for the inner shell
exec unshare --mount --pid --fork --kill-child bash -c '
  set -e
  mount -t proc proc "$1/proc"
  mount --rbind /sys "$1/sys"
  mount --rbind /dev "$1/dev"
  cd "$1"
  exec chroot "$1" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    TERM="${TERM:-dumb}" "${@:3}" bash -c "cd /root/gradus && $2"
' on-debian "$place/root" "$command" "${settings[@]}"
