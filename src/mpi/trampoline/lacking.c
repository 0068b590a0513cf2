// SPDX-License-Identifier: Apache-2.0
/* The functions that XLA never calls. Each has to be there, and ends the process. It reads no argument
 * and never returns, so its parameters and its result are left out. */
#include "trampoline.h"

#define LACKS_NAMED(symbol, name)                                                                  \
    _Noreturn void symbol(void);                                                                   \
    _Noreturn void symbol(void)                                                                    \
    {                                                                                              \
        lack(name);                                                                                \
    }
#define LACKS(name)           LACKS_NAMED(MPIABI_##name, "MPI_" #name)
#define LACKS_EXTENSION(name) LACKS_NAMED(MPIXABI_##name, "MPIX_" #name)

static _Noreturn void lack(const char *name)
{
    tramp_end(
        1,
        "%s is not in libkolo_mpitrampoline.so, which has only what JAX calls. For a whole MPI, let "
        "MPITRAMPOLINE_LIB name the MPIwrapper of an MPI library",
        name);
}

#pragma GCC visibility push(default)
#include "lacking.def"
