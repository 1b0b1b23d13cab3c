#!/usr/bin/env bash
# Builds the recorders and runs them on this machine's NVIDIA GPU; what they print are the records.
#
#   tools/gpu_lab/recorders/record.sh FOLDER [NAME...]
#
# FOLDER gets the records as *.txt, device_properties.json, and logs/ (of compilers and of what was written to stderr).
# With names, only those parts run: properties cudart cublaslt cudnn figures arithmetic functors sanitizer plans. It
# needs nvcc, cuBLASLt and cuDNN (of the toolkit or of Python's packages), compute-sanitizer for that part, and some
# five minutes. Each program runs under a limit of its own, so that one that hangs costs its own record alone.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$here
while [ "$root" != / ] && [ ! -f "$root/tensor/ops/scalar_math.h" ]; do root=$(dirname "$root"); done
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
parts=" ${*:-properties cudart cublaslt cudnn figures arithmetic functors sanitizer plans} "
wanted() { case "$parts" in *" $1 "*) true ;; *) false ;; esac; }
work=$(mktemp -d)
mkdir -p "$out/logs"
say() { echo "$(date +%T) $*" | tee -a "$out/logs/record.log"; }

# ---- the toolkit, and libraries that Python's packages bring
export PATH=$PATH:/usr/local/cuda/bin
toolkit=${CUDA_HOME:-$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")}
site=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null)
includes=() libraries=()
for folder in "$toolkit" "$toolkit"/targets/x86_64-linux "$site"/nvidia/*; do
  [ -f "$folder/include/cudnn.h" ] || [ -f "$folder/include/cublasLt.h" ] && includes+=("-I$folder/include")
  for library in cudnn cublasLt; do
    for file in "$folder"/lib64/lib$library.so.* "$folder"/lib/lib$library.so.*; do
      [ -f "$file" ] && libraries+=("$(dirname "$file")") && break
    done
  done
done
# Headers that the machine lacks may lie in a folder include beside this file.
[ -d "$here/include" ] && includes+=("-I$here/include")
link=()
for folder in $(printf '%s\n' "${libraries[@]}" | awk '!seen[$0]++'); do link+=("-L$folder" -Xlinker "-rpath=$folder"); done
for library in cudnn cublasLt; do
  for folder in "${libraries[@]}"; do
    file=$(ls "$folder"/lib$library.so.[0-9]* 2>/dev/null | head -1)
    [ -n "$file" ] && link+=("-l:$(basename "$file")") && break
  done
done
[ -n "${libraries[*]}" ] && export LD_LIBRARY_PATH=$(IFS=:; echo "${libraries[*]}"):${LD_LIBRARY_PATH:-}
RECORD_CARD=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)
export RECORD_CARD
say "toolkit $toolkit; ${includes[*]}; ${link[*]}; $RECORD_CARD"
{ nvidia-smi; nvcc --version; uname -a; ldd --version | head -1; g++ --version | head -1; lscpu | grep 'Model name'; } > "$out/logs/machine.log" 2>&1

# ---- made from the toolkit's header
header=$toolkit/include/driver_types.h
[ -f "$header" ] || header=$toolkit/targets/x86_64-linux/include/driver_types.h
mkdir -p "$work/inc"
sed -n '/enum __device_builtin__ cudaDeviceAttr/,/^};/p' "$header" | sed -n 's/.*cudaDevAttr\([A-Za-z0-9_]*\) *= *\([0-9]*\).*/{"\1", \2},/p' > "$work/inc/attributes.inc"
sed -n '/struct __device_builtin__ cudaDeviceProp/,/^};/p' "$header" | sed 's#/\*\*<.*##' | sed -n 's/^ *[a-zA-Z_ ]* \([a-zA-Z0-9_]*\)\(\[[0-9]*\]\)\? *; *$/FIELD(\1)/p' | grep -v reserved > "$work/inc/fields.inc"
ln -s "$root" "$work/inc/gradus"

# ---- builds, all at once
declare -A builds
build() {  # PROGRAM SOURCE OPTIONS...
  local program=$1 source=$2
  shift 2
  (cd "$here" && nvcc -x cu -std=c++20 -O2 -arch=sm_90 -cudart static -I"$work/inc" -I"$here" "${includes[@]}" "$@" -o "$work/$program" "$source" > "$out/logs/build-$program.log" 2>&1
    echo $? > "$work/$program.status") &
  builds[$program]=$!
}
need() {  # waits by a file: a job of this shell's is not one of its subshells'
  until [ -s "$work/$1.status" ]; do sleep 0.2; done
  [ "$(cat "$work/$1.status")" = 0 ] || { say "$1 was not built:"; head -5 "$out/logs/build-$1.log"; return 1; }
}
functors="--expt-relaxed-constexpr -Xcompiler -march=x86-64-v3,-ffp-contract=off,-O2 --diag-suppress 20012,20014,20015"
host="-Xcompiler -march=x86-64-v3,-ffp-contract=off"
wanted functors && build functors_formulas functors.cu $functors -fmad=false
wanted functors && build functors_formulas_fmad functors.cu $functors
wanted arithmetic && build arithmetic arithmetic.cu $host -fmad=false
wanted arithmetic && build arithmetic_fmad arithmetic.cu $host
wanted cudart && build cudart_answers cudart_answers.cu
wanted cublaslt && build cublaslt_answers cublaslt_answers.cu "${link[@]}"
wanted cudnn && build cudnn_answers cudnn_answers.cu "${link[@]}"
wanted cudnn && build cudnn_relu cudnn_relu.cu "${link[@]}"
wanted plans && build cudnn_plans cudnn_plans.cu "${link[@]}"
wanted figures && build figures figures.cu "${link[@]}"
wanted sanitizer && build planted_faults planted_faults.cu -lineinfo
wanted properties && build device_properties device_properties.cc "${link[@]}"

go() {  # LIMIT RECORD PROGRAM ARGUMENTS...
  local limit=$1 record=$2 program=$3
  shift 3
  need "$program" || return
  timeout -k 5 "$limit" "$work/$program" "$@" > "$out/$record.txt" 2> "$out/logs/$record.log"
  say "$record: exit status $?, $(wc -l < "$out/$record.txt") lines"
}
env_go() { local setting=$1; shift; export "${setting?}"; go "$@"; }  # in a subshell
pack() { [ -n "${RECORD_TAR:-}" ] && tar czf "$RECORD_TAR" -C "$out" . && true; }

# ---- what may run side by side, while the longer builds go on
jobs=()
both() { "$@" & jobs+=($!); }
wanted properties && both go 60 device_properties device_properties "$out/device_properties.json"
wanted cudart && both go 120 cudart_answers cudart_answers
wanted cublaslt && both go 100 cublaslt_answers cublaslt_answers wrong
wanted cublaslt && both go 60 cublaslt_host_operand cublaslt_answers host
wanted cublaslt && both go 100 cublaslt_epilogues cublaslt_answers epilogues
wanted cudnn && both go 100 cudnn_answers cudnn_answers
wanted cudnn && both go 60 cudnn_relu cudnn_relu
wanted functors && both go 90 functors_formulas functors_formulas "Gradus' functors: the host's formulas on the device, -fmad=false" 5
wanted functors && both go 90 functors_formulas_fmad functors_formulas_fmad "Gradus' functors: the host's formulas on the device, multiply-adds fused"
[ ${#jobs[@]} -gt 0 ] && wait "${jobs[@]}"
pack

# ---- times: alone
for program in "${!builds[@]}"; do wait "${builds[$program]}"; done
say "all builds have ended"
wanted figures && go 90 figures figures
wanted cublaslt && go 60 cublaslt_layers cublaslt_answers layers
pack

# ---- plans: they take turns on the device
jobs=()
if wanted plans; then
  for type in f32 f16 bf16 f64; do both go 140 "cudnn_plans_$type" cudnn_plans "$type" "${RECORD_PLANS_SECONDS:-60}"; done
  both env_go NVIDIA_TF32_OVERRIDE=0 140 cudnn_plans_f32_without_tf32 cudnn_plans f32 "${RECORD_PLANS_SECONDS:-60}"
  wait "${jobs[@]}"
fi
pack

# ---- side by side again
jobs=()
wanted arithmetic && both go 150 arithmetic arithmetic
wanted arithmetic && both go 150 arithmetic_fmad arithmetic_fmad fmad
check() {  # TOOL NAME
  local log=$work/$1-$2.log tool=$1
  if [ "$tool" = alone ]; then
    timeout -k 5 20 "$work/planted_faults" "$2" > "$log" 2>&1
    [ -s "$log" ] && cat "$log" || printf 'alone\t%s\tno answer within 20 s\n' "$2"
    return
  fi
  local options=()
  [ "$tool" = memcheck ] && options=(--leak-check full --check-api-memory-access yes)
  timeout -k 5 60 compute-sanitizer --tool "$tool" "${options[@]}" "$work/planted_faults" "$2" > "$log" 2>&1
  local status=$?
  printf '%s\t%s\t%s; %s\n' "$tool" "$2" "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY' "$log" | sed 's/=* *//' | tr '\n' ',' | sed 's/,$//')$([ $status = 124 ] && echo 'no end within 60 s')" \
    "$(grep -E '^=+ (Error|Warning|Invalid|Uninitialized|Barrier|Divergent|Potential|Race|Program hit|Leaked|WARNING|ERROR:)' "$log" | head -2 | sed 's/^=* *//' | tr '\n' '|')"
}
if wanted sanitizer && need planted_faults; then
  export -f check
  export work
  {
    printf '# What compute-sanitizer finds of planted faults; group "alone" is the program without it\n# card and driver: %s\n# %s\n# date: %s\n' "$RECORD_CARD" \
      "$(compute-sanitizer --version | grep -i version | head -1)" "$(date -u '+%F %H:%M UTC')"
    for tool in alone memcheck racecheck synccheck initcheck; do
      for name in $("$work/planted_faults"); do echo "$tool $name"; done
    done | timeout 170 xargs -P 8 -L 1 bash -c 'check "$0" "$1"' | sort
  } > "$out/sanitizer.txt" 2> "$out/logs/sanitizer.log"
  cat "$work"/memcheck-*.log "$work"/racecheck-*.log "$work"/synccheck-*.log "$work"/initcheck-*.log 2>/dev/null | grep -v '^ *$' | head -1500 > "$out/logs/sanitizer_details.log"
  say "sanitizer: $(wc -l < "$out/sanitizer.txt") lines"
fi
[ ${#jobs[@]} -gt 0 ] && wait "${jobs[@]}"
pack
say "done"
for log in "$out"/logs/build-*.log; do [ -s "$log" ] && echo "== $log" && grep -m3 -E 'error' "$log"; done
rm -rf "$work"
true
