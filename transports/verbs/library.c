// SPDX-License-Identifier: Apache-2.0
/* libibverbs, opened by dlopen() once in a process, and its calls. */
#include "transports/verbs/library.h"

#include "util/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct kolo_verbs_library library; /* written once, by open_library() */
static char missing[KOLO_WHY_BYTES];      /* why it cannot be used; empty: it can */

static void open_library(void)
{
    library.handle = kolo_library_open("KOLO_IB_LIBRARY", "libibverbs.so.1", missing);
    if (library.handle == NULL) {
        return;
    }
#define FIND(type, call, parameters)                                                               \
    *(void **)(&library.call) = dlsym(library.handle, "ibv_" #call);
#define NEED(type, call, parameters)                                                               \
    FIND(type, call, parameters)                                                                   \
    if (library.call == NULL) {                                                                    \
        (void)snprintf(missing, sizeof missing, "libibverbs has no ibv_" #call);                   \
    }
    KOLO_VERBS_CALLS(NEED)
    KOLO_VERBS_NEWER_CALLS(FIND)
#undef NEED
#undef FIND
}

kolo_status kolo_verbs_library(const struct kolo_verbs_library **out)
{
    (void)pthread_once(&once, open_library);
    if (missing[0] != '\0') {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "verbs: %s", missing);
    }
    *out = &library;
    return KOLO_OK;
}

int kolo_verbs_query_port(const struct kolo_verbs_library *lib, struct ibv_context *context,
                          uint8_t port, struct ibv_port_attr *out)
{
    struct verbs_context *newer = __extension__ verbs_get_ctx_op(context, query_port);
    memset(out, 0, sizeof *out);
    return newer != NULL ? newer->query_port(context, port, out, sizeof *out)
                         : lib->query_port(context, port, out);
}
