// SPDX-License-Identifier: Apache-2.0
/* Memory. Registration is a hint, as in NCCL: kolo also uses memory that it does not register. */
#include "shim.h"

#include <stdlib.h>

#define MAGIC 0x6b6f6e77u /* "know" */

struct ncclWindow_vidmem { /* also the target of a registration's handle */
    uint32_t magic;
    struct ncclComm *comm;
    void *buff;
    bool registered; /* with kolo */
};

ncclResult_t pncclMemAlloc(void **ptr, size_t size)
{
    if (ptr == NULL) {
        return shim_fail(ncclInvalidArgument, "ptr is NULL");
    }
    if (size == 0) {
        *ptr = NULL;
        return ncclSuccess;
    }
    return shim_said(
        kolo_mem_alloc_on(shim_has_gpu() ? shim_current_device() : KOLO_HOST, size, ptr));
}
SHIM_NAME(ncclMemAlloc)

ncclResult_t pncclMemFree(void *ptr)
{
    kolo_mem_free(ptr);
    return ncclSuccess;
}
SHIM_NAME(ncclMemFree)

static ncclResult_t take_registration(struct ncclComm *comm, void *buff, size_t size,
                                      const char *call, struct ncclWindow_vidmem **out)
{
    SHIM_TRY(shim_enter(comm, call));
    struct ncclWindow_vidmem *made = malloc(sizeof *made);
    ncclResult_t result = ncclSuccess;
    if (made == NULL || buff == NULL || size == 0 || out == NULL) {
        result = made == NULL ? shim_fail(ncclSystemError, "out of memory for a registration")
                              : shim_fail(ncclInvalidArgument,
                                          "%s: buff is %p, of %zu bytes, its handle goes to %p",
                                          call, buff, size, (void *)out);
        free(made);
    } else {
        const bool registered = comm->on_host && kolo_mem_register(buff, size) == KOLO_OK;
        *made = (struct ncclWindow_vidmem){MAGIC, comm, buff, registered};
        *out = made;
    }
    shim_release(comm);
    return result;
}

static ncclResult_t give_back(struct ncclComm *comm, struct ncclWindow_vidmem *window,
                              const char *call)
{
    SHIM_TRY(shim_check(comm, call));
    if (window == NULL) {
        return ncclSuccess;
    }
    if (window->magic != MAGIC || window->comm != comm) {
        return shim_fail(ncclInvalidArgument, "%s: %p was not registered with comm", call,
                         (void *)window);
    }
    const kolo_status st = window->registered ? kolo_mem_unregister(window->buff) : KOLO_OK;
    window->magic = 0;
    free(window);
    return shim_said(st);
}

ncclResult_t pncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    struct ncclWindow_vidmem *made = NULL;
    if (handle == NULL) {
        return shim_fail(ncclInvalidArgument, "handle is NULL");
    }
    SHIM_TRY(take_registration(comm, buff, size, "ncclCommRegister", &made));
    *handle = made;
    return ncclSuccess;
}
SHIM_NAME(ncclCommRegister)

ncclResult_t pncclCommDeregister(const ncclComm_t comm, void *handle)
{
    return give_back(comm, handle, "ncclCommDeregister");
}
SHIM_NAME(ncclCommDeregister)

ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
                                     int winFlags)
{
    if ((winFlags & ~NCCL_WIN_COLL_SYMMETRIC) != 0) {
        return shim_fail(ncclInvalidArgument,
                         "winFlags is %d; it must be NCCL_WIN_DEFAULT or _COLL_SYMMETRIC",
                         winFlags);
    }
    return take_registration(comm, buff, size, "ncclCommWindowRegister", win);
}
SHIM_NAME(ncclCommWindowRegister)

ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    return give_back(comm, win, "ncclCommWindowDeregister");
}
SHIM_NAME(ncclCommWindowDeregister)
