// SPDX-License-Identifier: Apache-2.0
/* Which launcher started this process, as which rank, and where its ranks meet. */
#ifndef KOLO_CORE_LAUNCH_H
#define KOLO_CORE_LAUNCH_H

#include "boot.h"

struct kolo_launch {
    int rank, nranks;
    int local_rank, local_size; /* on this host */
    struct kolo_meet meet;
    const char *launcher; /* for the log: "kolo run", "torchrun", ..., "no launcher" */
};

/* Read the environment; the first that is there decides:
 *   kolo run, or by hand  KOLO_RANK KOLO_NRANKS KOLO_JOB [KOLO_LOCAL_RANK KOLO_LOCAL_SIZE]
 *   torchrun              RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE, met by run id, port, restart
 *   Open MPI              OMPI_COMM_WORLD_*, met by namespace or job id
 *   MPICH, Intel MPI      PMI_RANK PMI_SIZE MPI_LOCAL*, met by job id or hydra's control socket
 *   srun                  SLURM_PROCID SLURM_NTASKS SLURM_LOCALID, met by job and step
 *   other PMI             PMI_RANK PMI_SIZE PMI_LOCAL_*, met by job id
 *   none                  rank 0 of 1
 * KOLO_SECRET (64 hexadecimal digits) goes with any. Rank 0 is the one to host the meeting.
 * Errors: INVALID, naming variable and value; UNSUPPORTED where ranks are on several hosts. */
KOLO_CHECK kolo_status kolo_launch_detect(struct kolo_launch *out);

/* The same, with a meeting point of its own for each call: the k-th of this process is the k-th of
 * every other rank. */
KOLO_CHECK kolo_status kolo_launch_next(struct kolo_launch *out);

#endif
