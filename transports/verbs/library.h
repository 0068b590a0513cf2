// SPDX-License-Identifier: Apache-2.0
/* libibverbs, opened at the first use, so that machines without RDMA do not need it. The inline
 * calls of its header (post, poll, arm) go through the context, and are used directly. */
#ifndef KOLO_VERBS_LIBRARY_H
#define KOLO_VERBS_LIBRARY_H

#include "util/util.h"

#include <infiniband/verbs.h>

/* Return type, name, parameters. A library without KOLO_VERBS_NEWER_CALLS is accepted; one that
 * lacks another call is not. */
#define KOLO_VERBS_CALLS(X)                                                                        \
    X(struct ibv_device **, get_device_list, (int *count))                                         \
    X(void, free_device_list, (struct ibv_device * *list))                                         \
    X(const char *, get_device_name, (struct ibv_device * device))                                 \
    X(struct ibv_context *, open_device, (struct ibv_device * device))                             \
    X(int, close_device, (struct ibv_context * context))                                           \
    X(int, query_device, (struct ibv_context * context, struct ibv_device_attr * out))             \
    X(int, query_port, (struct ibv_context * context, uint8_t port, void *out))                    \
    X(int, query_gid, (struct ibv_context * context, uint8_t port, int index, union ibv_gid *out)) \
    X(int, query_pkey, (struct ibv_context * context, uint8_t port, int index, __be16 *out))       \
    X(struct ibv_pd *, alloc_pd, (struct ibv_context * context))                                   \
    X(int, dealloc_pd, (struct ibv_pd * pd))                                                       \
    X(struct ibv_mr *, reg_mr, (struct ibv_pd * pd, void *at, size_t len, int access))             \
    X(int, dereg_mr, (struct ibv_mr * mr))                                                         \
    X(struct ibv_comp_channel *, create_comp_channel, (struct ibv_context * context))              \
    X(int, destroy_comp_channel, (struct ibv_comp_channel * channel))                              \
    X(int, get_cq_event, (struct ibv_comp_channel * channel, struct ibv_cq * *cq, void **context)) \
    X(void, ack_cq_events, (struct ibv_cq * cq, unsigned count))                                   \
    X(struct ibv_cq *, create_cq,                                                                  \
      (struct ibv_context * context, int entries, void *own, struct ibv_comp_channel *channel,     \
       int vector))                                                                                \
    X(int, resize_cq, (struct ibv_cq * cq, int entries))                                           \
    X(int, destroy_cq, (struct ibv_cq * cq))                                                       \
    X(struct ibv_qp *, create_qp, (struct ibv_pd * pd, struct ibv_qp_init_attr * attr))            \
    X(int, modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask))                   \
    X(int, destroy_qp, (struct ibv_qp * qp))                                                       \
    X(int, get_async_event, (struct ibv_context * context, struct ibv_async_event * out))          \
    X(void, ack_async_event, (struct ibv_async_event * event))                                     \
    X(const char *, wc_status_str, (enum ibv_wc_status status))                                    \
    X(const char *, event_type_str, (enum ibv_event_type type))

/* Since rdma-core 34. */
#define KOLO_VERBS_NEWER_CALLS(X)                                                                  \
    X(struct ibv_mr *, reg_dmabuf_mr,                                                              \
      (struct ibv_pd * pd, uint64_t offset, size_t len, uint64_t iova, int fd, int access))

struct kolo_verbs_library {
    void *handle;
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration, in which these are not expressions */
#define KOLO_VERBS_MEMBER(type, name, parameters) type(*name) parameters;
    KOLO_VERBS_CALLS(KOLO_VERBS_MEMBER)
    KOLO_VERBS_NEWER_CALLS(KOLO_VERBS_MEMBER)
#undef KOLO_VERBS_MEMBER
};

/* The library, opened once in a process. KOLO_IB_LIBRARY names another file than libibverbs.so.1.
 * Errors: UNSUPPORTED (there is no library, or it lacks a call). */
KOLO_CHECK kolo_status kolo_verbs_library(const struct kolo_verbs_library **out);
/* As ibv_query_port(): it asks the device's driver if the driver knows newer fields. */
int kolo_verbs_query_port(const struct kolo_verbs_library *lib, struct ibv_context *context,
                          uint8_t port, struct ibv_port_attr *out);

#endif
