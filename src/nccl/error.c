// SPDX-License-Identifier: Apache-2.0
/* Errors. kolo keeps an error's sentence for the thread that failed. NCCL gives the last sentence
 * to any thread. */
#include "shim.h"

#include <stdarg.h>
#include <stdio.h>

enum { TEXT = 1024 };

static char last[TEXT];
static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;

ncclResult_t shim_fail(ncclResult_t result, const char *text, ...)
{
    va_list arguments;
    va_start(arguments, text);
    pthread_mutex_lock(&last_lock);
    (void)vsnprintf(last, sizeof last, text, arguments);
    pthread_mutex_unlock(&last_lock);
    va_end(arguments);
    return result;
}

ncclResult_t shim_meaning(kolo_status st)
{
    switch (st) {
    case KOLO_OK:
        return ncclSuccess;
    case KOLO_INPROGRESS:
        return ncclInProgress;
    case KOLO_ERR_INVALID:
        return ncclInvalidArgument;
    case KOLO_ERR_UNSUPPORTED:
    case KOLO_ERR_MISMATCH:
    case KOLO_ERR_FORKED:
    case KOLO_ERR_VERSION:
        return ncclInvalidUsage;
    case KOLO_ERR_PEER:
    case KOLO_ERR_TIMEOUT:
    case KOLO_ERR_LINK:
    case KOLO_ERR_ABORTED:
        return ncclRemoteError;
    case KOLO_ERR_SYSTEM:
        return ncclSystemError;
    case KOLO_ERR_INTERNAL:
        break;
    }
    return ncclInternalError;
}

ncclResult_t shim_said(kolo_status st)
{
    return st >= 0 ? shim_meaning(st) : shim_fail(shim_meaning(st), "%s", kolo_error_text());
}

const char *pncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "the CUDA driver reports an error (ncclGetLastError() tells which)";
    case ncclSystemError:
        return "the system refuses something: memory, descriptors, connections "
               "(ncclGetLastError() tells what)";
    case ncclInternalError:
        return "internal error: a bug in kolo (ncclGetLastError() tells where)";
    case ncclInvalidArgument:
        return "invalid argument (ncclGetLastError() tells which)";
    case ncclInvalidUsage:
        return "invalid usage: not supported here, or ranks made different calls "
               "(ncclGetLastError() tells what)";
    case ncclRemoteError:
        return "remote error: a rank died, ended the communicator or does not answer "
               "(ncclGetLastError() tells which)";
    case ncclInProgress:
        return "in progress: ask ncclCommGetAsyncError()";
    case ncclNumResults:
        break;
    }
    return "unknown result code";
}
SHIM_NAME(ncclGetErrorString)

const char *pncclGetLastError(ncclComm_t comm)
{
    static _Thread_local char text[TEXT];
    struct kolo_failure failure = {.size = sizeof failure};
    const bool failed = comm != NULL && shim_check(comm, "ncclGetLastError") == ncclSuccess &&
                        shim_ended(comm, &failure) != KOLO_OK && failure.text[0] != '\0';
    pthread_mutex_lock(&last_lock);
    (void)snprintf(text, sizeof text, "%s", failed ? failure.text : last);
    pthread_mutex_unlock(&last_lock);
    return text;
}
SHIM_NAME(ncclGetLastError)
