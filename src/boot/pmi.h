// SPDX-License-Identifier: Apache-2.0
/* Pass an id from rank 0 to all ranks of a job, by a service of the launcher or by a file.
 *
 * PMIx (mpirun of Open MPI, srun --mpi=pmix) and PMI-2 (srun --mpi=pmi2) are libraries of the
 * launcher. They are opened at the first use. Without them, KOLO_ID_FILE names a file that rank 0
 * makes and the other ranks read. */
#ifndef KOLO_BOOT_PMI_H
#define KOLO_BOOT_PMI_H

#include "util/util.h"

/* Whether a launcher with PMIx or PMI-2 started this process. */
bool kolo_pmi_is_there(void);
/* Share the `number`-th id of the job: rank 0 gives it, the others get it. All ranks call it.
 * Errors: SYSTEM (no such library, or its error). */
KOLO_CHECK kolo_status kolo_pmi_share(int rank, unsigned number, struct kolo_id *id);

/* The same by the file `path`. Ids after the first append .1, .2 ... to the name. Rank 0 creates
 * the file, readable only by its user, and the others wait for it. Errors: SYSTEM, INVALID (the
 * file existed before, or belongs to another user), TIMEOUT. */
KOLO_CHECK kolo_status kolo_id_file_share(const char *path, int rank, unsigned number,
                                          int timeout_ms, struct kolo_id *id);
/* All ranks have the id: rank 0 removes the file. */
void kolo_id_file_remove(const char *path, unsigned number);

#endif
