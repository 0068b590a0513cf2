// SPDX-License-Identifier: Apache-2.0
/* The queue pair of a lane: INIT, then RTR and RTS towards the peer's, and ERR when it stops.
 *
 * A receiver that is not ready is tried again only RNR_RETRIES times. Credits keep every receive
 * queue filled, so a longer wait would hide a fault. */
#include "transports/verbs/verbs.h"

#include <errno.h>

enum { RNR_TIMER = 12 /* 0.64 ms */, RNR_RETRIES = 6 /* 7 would be for ever */ };
enum { INLINE = 220 };

static kolo_status modify_queue_pair(struct kolo_verbs_lane *lane, struct ibv_qp_attr *attr,
                                     int mask, const char *state)
{
    const int failed = lane->link->ep->lib->modify_qp(lane->qp, attr, mask);
    return failed == 0
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_SYSTEM,
                           "verbs: a queue pair to rank %d over %s port %u does not become %s: %s",
                           lane->link->base.peer.rank, lane->rail->name, lane->rail->port, state,
                           kolo_why(failed));
}

static kolo_status initialise_queue_pair(struct kolo_verbs_lane *lane)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = lane->rail->pkey_index,
                               .port_num = lane->rail->port,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    return modify_queue_pair(
        lane, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
}

kolo_status kolo_verbs_queue_pair_connect(struct kolo_verbs_lane *lane)
{
    const struct kolo_verbs_rail *rail = lane->rail;
    const struct kolo_endpoint *ep = lane->link->ep;
    const struct kolo_verbs_port *port = &lane->link->address.port[lane->peer_rail];
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = (enum ibv_mtu)kolo_min(rail->self.mtu, lane->offer.mtu),
                               .dest_qp_num = lane->offer.qpn,
                               .rq_psn = lane->offer.psn,
                               .max_dest_rd_atomic = 1,
                               .min_rnr_timer = RNR_TIMER,
                               .ah_attr = {.dlid = port->lid,
                                           .sl = ep->service_level,
                                           .is_global = rail->self.ethernet,
                                           .port_num = rail->port}};
    if (attr.ah_attr.is_global) {
        attr.ah_attr.grh = (struct ibv_global_route){.sgid_index = (uint8_t)rail->gid_index,
                                                     .hop_limit = 255,
                                                     .traffic_class = ep->traffic_class};
        memcpy(attr.ah_attr.grh.dgid.raw, port->gid, sizeof port->gid);
    }
    KOLO_TRY(modify_queue_pair(lane, &attr,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                               "RTR"));
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .sq_psn = lane->psn,
                                .timeout = ep->timeout,
                                .retry_cnt = ep->retries,
                                .rnr_retry = RNR_RETRIES,
                                .max_rd_atomic = 1};
    return modify_queue_pair(lane, &attr,
                             IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                             "RTS");
}

/* With as many inline bytes as the device allows. */
kolo_status kolo_verbs_queue_pair_create(struct kolo_verbs_lane *lane)
{
    const struct kolo_verbs_rail *rail = lane->rail;
    struct ibv_qp_init_attr attr = {.send_cq = rail->cq,
                                    .recv_cq = rail->cq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = KOLO_VERBS_SENDS,
                                            .max_recv_wr = KOLO_VERBS_RECVS,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1}};
    for (uint32_t room = INLINE; lane->qp == NULL; room /= 2) {
        attr.cap.max_inline_data = room;
        errno = 0;
        lane->qp = rail->lib->create_qp(rail->pd, &attr);
        if (lane->qp == NULL && room == 0) {
            return kolo_fail(KOLO_ERR_SYSTEM,
                             "verbs: %s port %u gives no queue pair with %d sends and %d receives "
                             "to rank %d: %s",
                             rail->name, rail->port, (int)KOLO_VERBS_SENDS, (int)KOLO_VERBS_RECVS,
                             lane->link->base.peer.rank, kolo_why(errno));
        }
    }
    lane->max_inline = attr.cap.max_inline_data;
    return initialise_queue_pair(lane);
}

void kolo_verbs_queue_pair_stop(struct kolo_verbs_lane *lane)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    if (lane->qp != NULL) {
        (void)lane->link->ep->lib->modify_qp(lane->qp, &attr, IBV_QP_STATE);
    }
}
