#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job of Slurm on two nodes with two ranks each: sbatch slurm.sh. It measures the network with one of
# kolo's programs of perf/, which srun starts, and trains with kolo_train, which torchrun starts.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:10:00
set -euo pipefail

# PMI-2 carries address and secret from rank to rank.
srun --mpi=pmi2 all_reduce_perf -b 8 -e 4M -f 8

# A torchrun on each node; the first node's number is 0.
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export head OMP_NUM_THREADS=1
srun --ntasks-per-node=1 --ntasks="$SLURM_JOB_NUM_NODES" bash -c 'exec torchrun \
    --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node=2 --node-rank="$SLURM_NODEID" \
    --master-addr="$head" --master-port=29500 -m kolo_train --parallel ddp --steps 200'
