#!/bin/sh
# Copies a package to a prefix: install.sh PACKAGE PREFIX. Everything in it is found from where it lies, so that the prefix
# can be moved.
set -eu
package=$1 prefix=$2
mkdir -p "$prefix"
cp -RL --no-preserve=mode,ownership "$package/." "$prefix/"
chmod 755 "$prefix"/bin/gradus-run
for folder in include lib; do
  ln -sfn "../../../$folder" "$prefix/share/gradus/bazel/$folder"
done
