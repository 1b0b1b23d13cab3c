#!/usr/bin/env bash
# warnings.sh [--jobs N] [FILE...]: each public header by itself, and each program of docs and examples, compiles without a
# warning under strict flags, with every compiler that is there. FILE: these alone, as paths in the tree.
set -euo pipefail
readonly COMPILERS=(g++ g++-12 clang++-16 clang++-19) STANDARDS=(c++20 c++2b)

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
jobs=$(nproc)
files=()
while (($#)); do
  case $1 in
    --jobs=*) jobs=${1#*=} ;;
    --jobs) jobs=${2:?--jobs needs a number} && shift ;;
    -*) echo "headers: unexpected '$1'; usage: tools/headers.sh [--jobs N] [FILE...]" >&2 && exit 2 ;;
    *) files+=("$1") ;;
  esac
  shift
done

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
mkdir "$work/include"
ln -s "$root" "$work/include/gradus"
cd "$root"
if ((!${#files[@]})); then
  # What is installed, and the models, which programs of this tree use.
  mapfile -t files < <(
    g++ -std=c++20 -MM -I"$work/include" gradus.h | tr -s ' \\' '\n' | sed -n "s|^$work/include/gradus/||p" | sort
    find models -name '*.h' | sort
    find examples tests/docs tests/install -name '*.cc' ! -name mistakes.cc | sort
  )
  files+=(gradus.h)
fi

compilers=()
declare -A seen=()
for compiler in "${COMPILERS[@]}"; do
  if ! path=$(command -v "$compiler"); then
    echo "not there: $compiler (Debian: apt-get install ${compiler/++-/-})"
  elif [[ -z ${seen[$(readlink -f "$path")]:-} ]]; then
    seen[$(readlink -f "$path")]=1
    compilers+=("$compiler")
    echo "with $("$compiler" --version | head -1)"
  fi
done
((${#compilers[@]})) || exit 1

# Compiles one file; prints what the compiler says, all at once.
check() {
  local compiler=$1 standard=$2 file=$3 source=("$include/gradus/$3") said
  [[ $file != *.h ]] || source=(-include "gradus/$file" -x c++ /dev/null)
  said=$(nice -n 19 "$compiler" -std="$standard" -Wall -Wextra -Wshadow -Wconversion -Werror -fsyntax-only -I"$include" \
    "${source[@]}" 2>&1) && return
  printf '== %s %s %s\n%s\n' "$compiler" "$standard" "$file" "$said"
  return 1
}
export -f check
export include=$work/include

failed=0
for compiler in "${compilers[@]}"; do
  for standard in "${STANDARDS[@]}"; do
    printf '%s\n' "${files[@]}" | xargs -P "$jobs" -I{} bash -c "check $compiler $standard {}" || failed=1
  done
done
((failed)) || echo "no warnings: ${#files[@]} files, ${#compilers[@]} compilers, ${STANDARDS[*]}"
exit "$failed"
