// SPDX-License-Identifier: Apache-2.0
/* Calls that look once whether something has come. A program may look after a collective for what was
 * sent before it, and MPI's own collectives would have brought it. So messages move first, if kolo has
 * served collectives since they last did. Collectives themselves stay cheap by that. */
#include "shim.h"

#define LOOK(name, params, args)                                                                   \
    __attribute__((visibility("default"))) int MPI_##name params                                   \
    {                                                                                              \
        kmpi_catch_up();                                                                           \
        return PMPI_##name args;                                                                   \
    }

LOOK(Iprobe, (int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status),
     (source, tag, comm, flag, status))
LOOK(Improbe,
     (int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status),
     (source, tag, comm, flag, message, status))
LOOK(Test, (MPI_Request * request, int *flag, MPI_Status *status), (request, flag, status))
LOOK(Testall, (int count, MPI_Request requests[], int *flag, MPI_Status statuses[]),
     (count, requests, flag, statuses))
LOOK(Testany, (int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status),
     (count, requests, index, flag, status))
LOOK(Testsome,
     (int in_count, MPI_Request requests[], int *out_count, int indices[], MPI_Status statuses[]),
     (in_count, requests, out_count, indices, statuses))
LOOK(Request_get_status, (MPI_Request request, int *flag, MPI_Status *status),
     (request, flag, status))
LOOK(Win_test, (MPI_Win win, int *flag), (win, flag))
