// SPDX-License-Identifier: Apache-2.0
/* The constants, as MPItrampoline reads them: an int, or a word. */
#include "trampoline.h"

#pragma GCC visibility push(default)

#define INT(name, value)                                                                           \
    extern const int MPIABI_##name;                                                                \
    const int MPIABI_##name = (value);
#define WORD(name, value)                                                                          \
    extern const uintptr_t MPIABI_##name;                                                          \
    const uintptr_t MPIABI_##name = (uintptr_t)(value);
#include "constants.def"

/* What MPItrampoline compares with its own: the same major version, no smaller minor one. */
extern const int mpiabi_version_major, mpiabi_version_minor, mpiabi_version_patch;
const int mpiabi_version_major = 2;
const int mpiabi_version_minor = 10;
const int mpiabi_version_patch = 0;

/* What it tells under MPITRAMPOLINE_VERBOSE. */
extern const int mpiwrapper_version_major, mpiwrapper_version_minor, mpiwrapper_version_patch;
const int mpiwrapper_version_major = KOLO_VERSION_MAJOR;
const int mpiwrapper_version_minor = KOLO_VERSION_MINOR;
const int mpiwrapper_version_patch = KOLO_VERSION_PATCH;

/* It calls this before it reads anything. There are no constants of Fortran here. */
void mpiwrapper_export_fortran_constants_(void);
void mpiwrapper_export_fortran_constants_(void) {}
