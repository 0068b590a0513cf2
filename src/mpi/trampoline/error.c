// SPDX-License-Identifier: Apache-2.0
/* Errors: each thread has the text of its last one. */
#include "trampoline.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ERROR_CHARS = 1024, VERSION_CHARS = 8192 }; /* the caller's room */

static _Thread_local char last[ERROR_CHARS];

int tramp_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(last, sizeof last, format, arguments);
    va_end(arguments);
    return TRAMP_ERR_OTHER;
}

int tramp_result(kolo_status st)
{
    return st == KOLO_OK ? TRAMP_SUCCESS : tramp_fail("kolo: %s", kolo_error_text());
}

/* Without exit(): handlers of Python would wait for threads that wait for this one. */
_Noreturn void tramp_end(int code, const char *format, ...)
{
    char text[ERROR_CHARS];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "kolo: %s.\n", text);
    (void)fflush(NULL);
    _exit(code == 0 ? 1 : code);
}

int MPIABI_Error_string(int code, char *text, int *length)
{
    *length = snprintf(text, ERROR_CHARS, "%s", code == TRAMP_SUCCESS ? "no error" : last);
    return TRAMP_SUCCESS;
}

int MPIABI_Abort(tramp_handle comm, int code)
{
    (void)comm;
    tramp_end(code, "MPI_Abort(%d) was called", code);
}

int MPIABI_Get_version(int *version, int *subversion)
{
    *version = 3;
    *subversion = 1;
    return TRAMP_SUCCESS;
}

int MPIABI_Get_library_version(char *text, int *length)
{
    *length = snprintf(text, VERSION_CHARS, "kolo %d.%d.%d, for JAX alone", KOLO_VERSION_MAJOR,
                       KOLO_VERSION_MINOR, KOLO_VERSION_PATCH);
    return TRAMP_SUCCESS;
}
