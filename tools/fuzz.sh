#!/usr/bin/env bash
# Looks for bytes that break what reads files and messages, by libFuzzer.
#
#   tools/fuzz.sh [--seconds N] [--jobs N] [TARGETS]    60 seconds each, one at a time
#
# Inputs that an earlier run found are kept in the cache folder; the next run starts with them.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# Names the fuzz targets: NAME_fuzz.cc.
fuzz_targets() {
  find "$root/tests/fuzz" "$root/tests/distributed" -name '*_fuzz.cc' -printf '%f\n' | sed 's/_fuzz\.cc$//' | sort
}

# Compiles one source for libFuzzer, unless its object is newer than all that it may depend on.
fuzz_compile() {
  local source=$1 object
  object=$place/objects/${source//\//.}.o
  [[ -f $object && $object -nt $place/newest ]] && return
  # Clang 14 has no _Float16 on x86-64; its __fp16 does what is asked of it here.
  clang++ -std=c++20 -O1 -g1 -march=x86-64-v3 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all \
    -DGRADUS_NO_OPENMP -D__FLT16_MANT_DIG__=11 -D_Float16=__fp16 -Xclang -fallow-half-arguments-and-returns -I"$place/include" \
    -c "$root/$source" -o "$object"
}

# Links the program of a target, and writes the inputs that its search begins with.
fuzz_build() {
  local name=$1 main=tests/fuzz/$1_fuzz.cc helpers=("$place/objects/tests.fuzz.fuzz_seeds.cc.o")
  if [[ ! -f $root/$main ]]; then
    main=tests/distributed/store/$1_fuzz.cc
    helpers=()
  fi
  clang++ -fsanitize=fuzzer,address,undefined "$place/objects/${main//\//.}.o" "${helpers[@]}" "$place/gradus.a" \
    -ljpeg -lpng -lwebp -llmdb -lz -lcrypto -pthread -o "$place/${name}_fuzz"
  mkdir -p "$place/corpus/$name" "$place/seeds/$name"
  ((!${#helpers[@]})) || (cd "$root" && "$place/${name}_fuzz" --seeds="$place/seeds/$name")
}

# Runs a target for a while; says how it went.
fuzz_target() {
  local name=$1 seconds=$2 log=$place/$1.log longest=8192 runs
  # A script of more bytes than that repeats itself.
  [[ $name != store ]] || longest=1024
  # Scratch files in memory where that can be.
  [[ ! -w /dev/shm ]] || export TMPDIR=/dev/shm
  if "$place/${name}_fuzz" -max_total_time="$seconds" -max_len="$longest" -timeout=25 -rss_limit_mb=1024 \
    -print_final_stats=1 -artifact_prefix="$place/$name-" "$place/corpus/$name" "$place/seeds/$name" >"$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    printf '%s: clean, %s inputs in %s s\n' "$name" "$runs" "$seconds"
  else
    printf '%s: FAILED, see %s\n' "$name" "$log"
    return 1
  fi
}

seconds=60 jobs=1 names=() failed=0
while (($#)); do
  case $1 in
    -h | --help) usage ;;
    --seconds=* | --jobs=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    --seconds | --jobs)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "fuzz: $1 needs a number above 0"
      if [[ $1 == --seconds ]]; then seconds=$2; else jobs=$2; fi
      shift 2
      ;;
    *)
      fuzz_targets | grep -qxF -- "$1" || die "fuzz: no target '$1'; there are: $(fuzz_targets | xargs)"
      names+=("$1")
      shift
      ;;
  esac
done
((${#names[@]})) || mapfile -t names < <(fuzz_targets)
ensure_packages "$PACKAGES
clang                 libFuzzer, which finds inputs by what code they reach"

place=$(cache_dir)/fuzz
mkdir -p "$place/include" "$place/objects"
ln -sfn "$root" "$place/include/gradus"
sources=$(cd "$root" && printf '%s\n' data/dataset.cc data/{images,transforms}/*.cc data/files/{idx,input_file}.cc \
  data/sets/{cifar,file_list,image*,segmentation_files,text,voc}.cc io/{checkpoint*,file,file_lock,safetensors*}.cc \
  tensor/*.cc tensor/{base,runtime,runtime/internal}/*.cc tensor/ops/copy.cc tensor/cpu/{convert,copy,transpose}.cc \
  distributed/base/{error,key_table,simulation_hooks}.cc \
  distributed/health/{blame,deadlock,membership,rank_status,roster,still_threads}.cc \
  distributed/store/{store_protocol,store_table}.cc \
  distributed/store/internal/{status_wire,store_service}.cc tests/fuzz/{fuzz,fuzz_seeds,image_checks}.cc)
for name in "${names[@]}"; do
  sources+=$'\n'$(cd "$root" && find tests -name "${name}_fuzz.cc")
done
touch -r "$(find "$root"/{data,io,tensor,distributed,tests/fuzz} -name '*.[ch]*' -printf '%T@ %p\n' | sort -n |
  sed -n '$s/^[^ ]* //p')" "$place/newest"
export root place
export -f fuzz_compile fuzz_target
say "building ${names[*]}"
xargs -P "$(nproc)" -I{} bash -c 'fuzz_compile {}' <<<"$sources" || die "fuzz: a source does not compile"
rm -f "$place/gradus.a"
# Of these sources alone: others' objects may be left over from an earlier state of the tree.
(cd "$place/objects" && ar rcs "$place/gradus.a" $(grep -v '_fuzz\.cc$\|fuzz_seeds' <<<"$sources" | sed 's|/|.|g; s|$|.o|'))
for name in "${names[@]}"; do fuzz_build "$name"; done
say "running each for $seconds s, $jobs at a time"
printf '%s\n' "${names[@]}" | xargs -P "$jobs" -I{} bash -c "fuzz_target {} $seconds" || failed=1
exit "$failed"
