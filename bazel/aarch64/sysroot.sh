#!/usr/bin/env bash
# sysroot.sh FOLDER PACKAGE...: unpacks Debian's packages for ARM, and all that they depend on, into FOLDER/sysroot.
# apt works in a state of its own: nothing of the system changes, and root is not needed.
set -euo pipefail

folder=$1
shift
rm -rf "$folder"
mkdir -p "$folder"/apt/{lists,cache}/partial "$folder/sysroot"
touch "$folder/apt/status"

apt() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root -o Debug::NoLocking=true \
    -o Dir::State="$folder/apt" -o Dir::State::status="$folder/apt/status" -o Dir::Cache="$folder/apt" \
    -o Dir::Cache::archives="$folder/apt/cache" "$@"
}
apt update
apt install -y --no-install-recommends --download-only "$@"
for package in "$folder"/apt/cache/*.deb; do dpkg -x "$package" "$folder/sysroot"; done

# Absolute links would lead out of the sysroot.
find "$folder/sysroot" -type l -lname '/*' -printf '%p %l\n' | while read -r link to; do
  ln -sfnr "$folder/sysroot$to" "$link"
done
rm -rf "$folder/apt"
touch "$folder/whole"
