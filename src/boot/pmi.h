// SPDX-License-Identifier: Apache-2.0
/* An id travels from rank 0 to all ranks of a job, by a service of the launcher or by a file.
 *
 * PMIx (mpirun of Open MPI, srun --mpi=pmix) and PMI-2 (srun --mpi=pmi2) are libraries of the
 * launcher, opened when they are needed. Without either, KOLO_ID_FILE names a file that rank 0
 * makes and the others read. */
#ifndef KOLO_BOOT_PMI_H
#define KOLO_BOOT_PMI_H

#include "util/util.h"

/* Whether a launcher with PMIx or PMI-2 started this process. */
bool kolo_pmi_is_there(void);
/* Share the `number`-th id of the job: rank 0 gives it, the others get it. All ranks call it.
 * Errors: SYSTEM (no such library, or its error). */
KOLO_CHECK kolo_status kolo_pmi_share(int rank, unsigned number, struct kolo_id *id);

/* The same by the file `path`, for ids after the first with .1, .2 ... appended. Rank 0 makes it
 * anew, readable for its user alone; the others wait for it. Errors: SYSTEM, INVALID (it was there
 * before, or belongs to somebody else), TIMEOUT. */
KOLO_CHECK kolo_status kolo_id_file_share(const char *path, int rank, unsigned number,
                                          int timeout_ms, struct kolo_id *id);
/* All ranks have the id: rank 0 removes the file. */
void kolo_id_file_remove(const char *path, unsigned number);

#endif
