#!/bin/bash
#SBATCH --job-name=colobus
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --signal=B:TERM@120
# Trains on all nodes of a Slurm job. The words behind the script are those of `colobus train`:
#
#   sbatch --nodes=4 examples/slurm.sh dba3c-pong --workers 16 --minutes 50 --out runs/pong
#
# Submitted again with the same words, it goes on with the run. Colobus and Ray must be on the PATH of
# the job, and the working folder and HOME on a file system that all nodes share.
set -u
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address="$(getent ahostsv4 "$head" | head -n 1 | cut -d ' ' -f 1):6379"

# A token of this job: whoever has none cannot use its Ray.
umask 077
mkdir -p "$HOME/.ray"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$HOME/.ray/token-of-job-$SLURM_JOB_ID"
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300 # seconds for all nodes to start
head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n' >"$RAY_AUTH_TOKEN_PATH"
pid="$RAY_AUTH_TOKEN_PATH.pid"
trap 'rm -f "$RAY_AUTH_TOKEN_PATH" "$pid"' EXIT

# A run that has a folder goes on with every submission of the same words.
case " $* " in *" --out "* | *" --out="*) set -- "$@" --resume-or-start ;; esac

# Ray on every node, and the command on the first one, whose process this script can signal alone.
srun ray symmetric-run --address "$address" --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus "$SLURM_CPUS_ON_NODE" -- \
    bash -c 'echo $$ >"$0"; exec colobus train "$@"' "$pid" \
    "$@" --on ray --address "$address" &
trap 'kill -TERM "$(cat "$pid")"' TERM # two minutes before the end: the run is saved
wait $!
wait $!
