// SPDX-License-Identifier: Apache-2.0
/* The launcher that started this process, its rank, and the meeting point of the ranks. */
#ifndef KOLO_BOOT_LAUNCH_H
#define KOLO_BOOT_LAUNCH_H

#include "boot/bootstrap.h"

struct kolo_launch {
    int rank, nranks;
    int local_rank, local_size; /* on this host */
    bool several;               /* the ranks are, or may be, on several hosts */
    struct kolo_meet meet;
    bool served;          /* rank 0 runs the meeting already: it made an id */
    const char *id_file;  /* KOLO_ID_FILE if it is used, else NULL */
    unsigned number;      /* the communicator's number in the job, from 0 */
    int timeout_ms;       /* for waits for the id and for the name of rank 0's host */
    const char *launcher; /* for the log: "kolo run", "torchrun", ..., "no launcher" */
};

/* Read the environment. The first launcher whose variables are set decides:
 *   kolo run, or by hand  KOLO_RANK KOLO_NRANKS KOLO_JOB [KOLO_LOCAL_RANK KOLO_LOCAL_SIZE]
 *   torchrun              RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE, met by run id, port, restart
 *   Open MPI              OMPI_COMM_WORLD_*, met by namespace or job id
 *   MPICH, Intel MPI      PMI_RANK PMI_SIZE MPI_LOCAL*, met by job id or hydra's control socket
 *   srun                  SLURM_PROCID SLURM_NTASKS SLURM_LOCALID, met by job and step
 *   other PMI             PMI_RANK PMI_SIZE PMI_LOCAL_*, met by job id
 *   none                  rank 0 of 1
 * KOLO_SECRET (64 hexadecimal digits) goes with any of them. Rank 0 hosts the meeting point.
 * Errors: INVALID; the text names variable and value. */
KOLO_CHECK kolo_status kolo_launch_detect(struct kolo_launch *out);

/* The same, with a new meeting point for each call. The k-th call of this process meets the k-th
 * call of every other rank. Ranks on several hosts meet by the first of these that is set:
 *   KOLO_ROOT      "host:port" that rank 0 listens at, with KOLO_SECRET
 *   KOLO_ID_FILE   a file on a file system that they share
 *   KOLO_PORT      with MASTER_ADDR (torchrun) and KOLO_SECRET
 *   PMIx, PMI-2    of mpirun or srun
 * A wait for a file, or for the address of a host's name, ends after `timeout_ms`.
 * Errors: as above; INVALID if none of these is set; errors of passing the id. */
KOLO_CHECK kolo_status kolo_launch_next(int timeout_ms, struct kolo_launch *out);
/* The communicator is created, or has failed: no rank needs the meeting point any more. */
void kolo_launch_done(const struct kolo_launch *launch);

/* launch_hosts.c: fill launch->meet for ranks on several hosts. */
KOLO_CHECK kolo_status kolo_launch_hosts(struct kolo_launch *launch);

#endif
