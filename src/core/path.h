// SPDX-License-Identifier: Apache-2.0
/* Paths: how calls on memory of a device run.
 *
 * Core runs calls on host memory. A communicator with config.device has a path beside, which takes
 * the calls on memory of that device. A path is built above core: it uses public calls on host
 * memory, and core reaches it by this table alone. So a build may have none (-Dgpu=disabled). */
#ifndef KOLO_CORE_PATH_H
#define KOLO_CORE_PATH_H

#include "core/comm.h"

struct kolo_call;
struct kolo_message;

/* What core hands to a path, which may be made of communicators. */
struct kolo_path_env {
    struct kolo_comm *comm;
    bool local; /* one thread joins the ranks one by one, so a rank cannot wait for another */
    kolo_status (*split)(struct kolo_comm *comm, int color, int key,
                         const struct kolo_config *config, struct kolo_comm **out);
    void (*destroy)(struct kolo_comm *comm);
};

struct kolo_path_ops {
    const char *name;
    /* Whether the driver is there; no other rank is waited for. Errors: UNSUPPORTED, SYSTEM, INVALID
     * (an environment variable of the path is wrong). */
    kolo_status (*check)(void);
    /* The device's bus address as a text; `room` of 32 suffices. Errors: as above, INVALID. */
    kolo_status (*bus)(int device, char *out, size_t room);

    /* Collective, unless env->local: join the ranks, once host memory works. *out is set as soon as
     * leave() has something to free, also if joining fails; the caller sets its `ops`. Errors:
     * UNSUPPORTED (some rank cannot use its device), INVALID (no such device), SYSTEM, and those of
     * collectives. */
    kolo_status (*join)(const struct kolo_path_env *env, struct kolo_comm_path **out);
    /* Wait until this rank's calls are over, `timeout_ms` at most; then free the path. */
    void (*leave)(struct kolo_comm_path *path, int timeout_ms);
    /* The communicator has ended: streams that wait for other ranks go on. Never blocks. Any
     * thread, also more than once. */
    void (*abort)(struct kolo_comm_path *path);
    /* OK, or the failure that a kernel has found and the rank at fault. The watchdog calls it. */
    kolo_status (*poll)(struct kolo_comm_path *path, int *rank_out);

    /* False: the call is on host memory, and nothing was done. Else the path has enqueued the call,
     * will enqueue it at the end of the group, or has failed: *out. It then frees what the call
     * owns. `call` was checked. */
    bool (*take)(struct kolo_comm_path *path, struct kolo_call *call, kolo_stream stream,
                 kolo_status *out);
    /* The same for a send or a receive. */
    bool (*take_message)(struct kolo_comm_path *path, const struct kolo_message *message,
                         kolo_stream stream, kolo_status *out);
    /* Enqueue what this thread's group collected. */
    kolo_status (*group_end)(void);

    /* What the log says behind the way to rank `peer`; "" for nothing. */
    const char *(*via)(const struct kolo_comm_path *path, int peer);

    /* Errors: INVALID (no such device), UNSUPPORTED (no driver), SYSTEM. */
    kolo_status (*alloc)(int device, size_t bytes, void **out);
    bool (*free)(void *ptr); /* false: alloc() has not given it */
};

struct kolo_comm_path { /* the first member of each path's own struct */
    const struct kolo_path_ops *ops;
};

/* All paths of this build, with NULL behind: src/gpu/registry.c, or src/core/no_paths.c. */
extern const struct kolo_path_ops *const kolo_paths[];

/* The operations for `device`, which is not KOLO_HOST. Errors: UNSUPPORTED, with how to build it.
 */
kolo_status kolo_path_find(int device, const struct kolo_path_ops **out);
/* End the group of all paths: the first error. */
kolo_status kolo_path_group_end(void);

/* Each false, OK or "" if the communicator has no path. */
static inline bool kolo_path_take(struct kolo_call *call, struct kolo_comm *comm,
                                  kolo_stream stream, kolo_status *out)
{
    struct kolo_comm_path *path = atomic_load_explicit(&comm->path, memory_order_acquire);
    return path != NULL && path->ops->take(path, call, stream, out);
}
static inline bool kolo_path_take_message(const struct kolo_message *message,
                                          struct kolo_comm *comm, kolo_stream stream,
                                          kolo_status *out)
{
    struct kolo_comm_path *path = atomic_load_explicit(&comm->path, memory_order_acquire);
    return path != NULL && path->ops->take_message(path, message, stream, out);
}
static inline kolo_status kolo_path_poll(struct kolo_comm *comm, int *rank_out)
{
    struct kolo_comm_path *path = atomic_load_explicit(&comm->path, memory_order_acquire);
    return path != NULL ? path->ops->poll(path, rank_out) : KOLO_OK;
}
static inline const char *kolo_path_via(const struct kolo_comm *comm, int peer)
{
    const struct kolo_comm_path *path = atomic_load_explicit(&comm->path, memory_order_acquire);
    return path != NULL ? path->ops->via(path, peer) : "";
}

#endif
