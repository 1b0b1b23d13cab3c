#!/usr/bin/env bash
# Trains ResNet-20 on CIFAR-10 in f32, with --amp bf16 and on 2 ranks with the same global batch, each with 3 seeds, one
# run after the other, and prints a table of test accuracies.
#
#   tools/cifar10-accuracy.sh DATA [OUT] [OPTIONS...]     OUT keeps the summaries and logs [cifar10_accuracy];
#                                                         runs that it has are not made again
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

[[ ${1:-} != @(-h|--help) ]] || usage
(($# >= 1)) || die "cifar10-accuracy: which folder has the data? --help says more"
data=$1 out=${2:-cifar10_accuracy}
shift $(($# > 1 ? 2 : 1))
mkdir -p "$out"

for seed in 1 2 3; do
  for kind in f32 bf16 2ranks; do
    name=$out/$kind.$seed
    [[ ! -f $name.json ]] || continue
    options=(--data "$data" --seed "$seed" --summary "$name.json.part")
    case $kind in
      bf16) options+=(--amp bf16) ;;
      2ranks) options+=(--nproc 2) ;;
    esac
    "$root/run" cifar10 "${options[@]}" "$@" >"$name.log" || { tail "$name.log" >&2; exit 1; }
    mv "$name.json.part" "$name.json"
    tail -n 1 "$name.log"
  done
done

python3 - "$out" <<'END'
import json, pathlib, statistics, sys

out = pathlib.Path(sys.argv[1])
means = {}
print(f"{'':8}  {'test accuracy at the end, %':30}  {'mean':>6}  {'to f32':>6}  images/s  MiB")
for kind in ("f32", "bf16", "2ranks"):
    runs = [json.loads(p.read_text()) for p in sorted(out.glob(kind + ".*.json"))]
    found = [100 * run["test_accuracy"] for run in runs]
    means[kind] = statistics.mean(found)
    print(f"{kind:8}  {'  '.join(f'{a:.2f}' for a in found):30}  {means[kind]:6.2f}  {means[kind] - means['f32']:+6.2f}"
          f"  {statistics.median(run['images_per_second'] for run in runs):8.0f}"
          f"  {max(run['peak_rss_mib'] for run in runs):.0f}")
END
