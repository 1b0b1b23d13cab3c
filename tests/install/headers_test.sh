#!/bin/bash
# The installed headers, and what users write with them, compile without a warning under strict flags; for mistakes the
# compiler says what is wrong. g++ is required; versions of clang that are not installed are skipped.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
include=$PWD/bazel/package/prefix/include
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/headers.XXXXXX")
failed=0

compilers=(g++)
declare -A seen=()
for c in clang++ clang++-14 clang++-16 clang++-19; do
  path=$(readlink -f "$(command -v "$c")") || continue
  [[ -n ${seen[$path]:-} ]] || compilers+=("$c")
  seen[$path]=1
done

# tools/headers.sh also checks each header alone, as C++20 and C++23.
users() {
  echo "== $1 $2"
  "$1" -std="$2" -Wall -Wextra -Wshadow -Wconversion -Werror -fsyntax-only -I"$include" "$here/users.cc" || failed=1
}
for c in "${compilers[@]}"; do users "$c" c++20; done
users g++ c++23

# Each mistake of mistakes.cc stands under `#if MISTAKE == N`, with what is to be said in a comment behind it. Its headers are
# precompiled: compilers find all.h.gch and all.h.pch beside all.h.
grep '^#include' "$here/mistakes.cc" >"$work/all.h"
said() {
  printf '#define MISTAKE %s\n#include "%s"\n' "$2" "$here/mistakes.cc" >"$work/mistake.cc"
  "$1" -std=c++20 -fsyntax-only -I"$include" -include "$work/all.h" "$work/mistake.cc" >"$work/log" 2>&1
}
for c in "${compilers[@]}"; do
  "$c" -std=c++20 -I"$include" -x c++-header "$work/all.h" -o "$work/all.h.$([[ $c == g++ ]] && echo gch || echo pch)"
  said "$c" 0 || { cat "$work/log"; echo "FAILED: $c without a mistake"; failed=1; }
  while read -r number text; do
    if said "$c" "$number"; then
      echo "FAILED: $c compiles mistake $number"
      failed=1
    elif ! grep -qF -- "$text" "$work/log"; then
      cat "$work/log"
      echo "FAILED: $c does not say of mistake $number: $text"
      failed=1
    fi
  done < <(sed -n 's|^#if MISTAKE == \([0-9]*\)  // ||p;' "$here/mistakes.cc" | paste -d' ' \
    <(sed -n 's|^#if MISTAKE == \([0-9]*\)  // .*|\1|p' "$here/mistakes.cc") -)
done
exit $failed
