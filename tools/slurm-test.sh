#!/usr/bin/env bash
# Runs job_program on two ranks under Slurm: one node, this machine, with daemons of its own in a temporary folder. A job
# that succeeds, one whose rank fails, and one job per node by gradus-run. Needs root on Debian.
#
#   tools/slurm-test.sh
#
# PROGRAM and GRADUS_RUN name built programs in place of those that it builds.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || usage
((EUID == 0)) || die "needs root: slurmd starts the ranks as their user"

ensure_packages 'slurmctld    controller
slurmd       the node
slurm-client srun
munge        authentication'
if [[ -z ${PROGRAM:-} ]]; then
  build //tests/distributed/launch:job_program //distributed/launch:gradus-run
  PROGRAM=$root/bazel-bin/tests/distributed/launch/job_program
  GRADUS_RUN=$root/bazel-bin/distributed/launch/gradus-run
fi

dir=$(mktemp -d)
chmod 755 "$dir"
pids=()
stop() {
  local pid
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do
    timeout 10 tail --pid="$pid" -f /dev/null || kill -9 "$pid" 2>/dev/null || true
  done
  rm -rf "$dir"
}
trap stop EXIT
trap 'exit 130' INT TERM

# Starts a daemon in the foreground, with a log.
start() {
  "$@" >"$dir/$(basename "$1").log" 2>&1 &
  pids+=($!)
}

# Runs a command until it succeeds, for at most 30 seconds.
wait_for() {
  local i
  for ((i = 0; i < 60; ++i)); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.5
  done
  tail -n 20 "$dir"/*.log >&2
  die "not within 30 s: $*"
}

host=$(hostname -s)
mkdir "$dir/state" "$dir/spool" "$dir/munge"
head -c 1024 /dev/urandom >"$dir/munge/key"
chmod 400 "$dir/munge/key"
cat >"$dir/slurm.conf" <<CONF
ClusterName=gradus
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=27817
SlurmdPort=27818
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES State=UP OverSubscribe=YES
CONF
export SLURM_CONF=$dir/slurm.conf

start munged --foreground --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" \
  --pid-file="$dir/munge/pid" --seed-file="$dir/munge/seed" --log-file="$dir/munge/log"
wait_for munge --socket="$dir/munge/socket" -n
start slurmctld -D
start slurmd -D -N "$host"
wait_for srun --immediate=1 -n 1 true

# expect STATUS TEXT COMMAND...: runs a command, whose status is 0 or not ("fails") and whose output has the text.
expect() {
  local status=0 output
  output=$(timeout 60 "${@:3}" 2>&1) || status=$?
  if { [[ $1 == 0 ]] && ((status != 0)); } || { [[ $1 == fails ]] && ((status == 0)); } || [[ $output != *"$2"* ]]; then
    printf '%s\n' "$output" >&2
    die "status $status, expected $1 and '$2': ${*:3}"
  fi
  say "as expected ($2): ${*:3}"
}
expect 0 'done a' srun -n 2 --overcommit "$PROGRAM" a ok
expect fails 'rank 1' srun -n 2 --overcommit --kill-on-bad-exit=1 "$PROGRAM" b throw
[[ -z ${GRADUS_RUN:-} ]] || expect 0 'done c' srun -n 1 "$GRADUS_RUN" --nproc-per-node 2 "$PROGRAM" c ok
say "Slurm $(slurmd -V | cut -d ' ' -f 2) ran all jobs"
