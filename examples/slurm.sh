#!/bin/bash
#SBATCH --job-name=dba3c-pong-1
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=6:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x.out
# Trains on all nodes of a Slurm job. This file was written by:
#
#   colobus slurm dba3c-pong --nodes 4 --workers 16 --minutes 50 --file examples/slurm.sh
#
# Submitted again, it goes on with the run. Words behind it are further flags of the training:
#
#   sbatch examples/slurm.sh --minutes 100
#
# The job comes back by itself until the run is over: Slurm requeues it after it has lost a node or
# had to make way, and it requeues itself when its time is over or a part of it was killed; if the
# run learns nothing meanwhile, only three times in a row. Colobus and Ray must be on the PATH
# of the job, and the working folder on a file system that all nodes share.
set -u
export run=runs/dba3c-pong-1 state batch=$$ address
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# not the loopback address that Debian gives a host's own name: Ray finds no head by that
host=$({ getent ahostsv4 "$head"; hostname -I | tr ' ' '\n'; } |
    awk '/^[0-9.]+( |$)/ && !/^127[.]/ { print $1; exit }')
[ "$host" ] || { echo "$head has no address of IPv4 but its own: Ray cannot start" && exit 2; }
port=$((20000 + SLURM_JOB_ID % 10000)) # of this job, or the next one that is free
while (: <"/dev/tcp/$host/$port") 2>/dev/null; do port=$((port + 1)); done
address=$host:$port

# A token of this job: whoever has none cannot use its Ray.
unset RAY_ADDRESS # of another cluster
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
RAY_AUTH_TOKEN=$(head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n')
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300 # seconds for all nodes to start
export RAY_gcs_rpc_server_reconnect_timeout_s=15   # that Ray stays on the others after its head

newest() { ls "$run/checkpoints" 2>/dev/null | tail -n 1; }

# Ray on a node, and on the first one the training. Ray's own logs are kept with those of the run.
on_each_node() {
    ray symmetric-run --address "$address" --min-nodes "$SLURM_JOB_NUM_NODES" \
        --num-cpus "$SLURM_CPUS_ON_NODE" -- bash -c 'training "$@"' training "$@"
    mkdir -p "$run/logs/$SLURMD_NODENAME/ray"
    cp -r "${RAY_TMPDIR:-/tmp}/ray/session_latest/logs/." "$run/logs/$SLURMD_NODENAME/ray/"
}

# What it prints goes where the job prints, and the script can signal it alone.
training() {
    colobus train dba3c-pong --workers 16 --minutes 50 "$@" \
        --out "$run" --resume-or-start --on ray --address "$address" >>"/proc/$batch/fd/1" 2>&1 &
    echo $! >"$state/process"
    wait $!
    code=$?
    # what was refused while Ray's head is gone was no setting
    [ $code != 2 ] || (: <"/dev/tcp/${address%:*}/${address##*:}") 2>/dev/null || code=1
    echo $code >"$state/code"
}
export -f on_each_node training

state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
before=$(newest)
[ "${SLURM_RESTART_COUNT:-0}" != 0 ] || rm -f "$run.failures" # it is handed in anew
scontrol show hostnames "$SLURM_JOB_NODELIST" | while read -r node; do mkdir -p "$run/logs/$node"; done
srun --output="$run/logs/%N/job.txt" --open-mode=append \
    bash -c 'on_each_node "$@"' on_each_node "$@" &
# two minutes before the end: the run is saved, if it has begun
trap 'kill -USR1 "$(cat "$state/process")" || kill "$!"' USR1
trap 'kill -TERM "$(cat "$state/process")"' TERM
while kill -0 $! 2>/dev/null; do wait $!; done

code=$(cat "$state/code" 2>/dev/null || echo 137)
case $code in
0 | 2 | 4 | 5 | 143) exit "$code" ;; # over, refused, diverged, a full disk, stopped by somebody
esac
if [ "$(newest)" != "$before" ]; then
    rm -f "$run.failures"
else
    echo "$code" >>"$run.failures" # after which nothing was learned, one a line
    if [ "$(wc -l <"$run.failures")" -gt 3 ]; then
        echo "exit code $code, and nothing was learned since the job came back: it is not requeued"
        exit "$code"
    fi
fi
scontrol show job "$SLURM_JOB_ID" | grep -q JobState=RUNNING || exit "$code" # it was cancelled
echo "the run is not over (exit code $code): requeued"
rm -rf "$state"
exec scontrol requeue "$SLURM_JOB_ID"
