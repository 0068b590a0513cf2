// SPDX-License-Identifier: Apache-2.0
/* Devices and ports: which ones this rank uses, how fast they are, and which peers they reach.
 *
 * KOLO_IB_HCA chooses as NCCL_IB_HCA does. It is a list of device names, separated by ','.
 *   - A name matches every device whose name begins with it. ":port" behind a name limits it to
 *     that port.
 *   - '=' before the list: the names are whole names.
 *   - '^' before the list: the names are the devices not to use.
 * Without KOLO_IB_HCA a rank uses the devices at its NUMA node, or all devices if there is none. */
#include "transports/verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FIRST_CQ = 1024, ASK_US = 100 * 1000 };

/* ---- settings ---- */

static bool names_port(const char *word, size_t len, bool whole, const char *name, unsigned port)
{
    const char *colon = memchr(word, ':', len);
    const size_t part = colon != NULL ? (size_t)(colon - word) : len;
    return part > 0 && strncmp(word, name, part) == 0 && (!whole || name[part] == '\0') &&
           (colon == NULL || strtoul(colon + 1, NULL, 10) == port);
}

static bool is_wanted(const char *name, unsigned port)
{
    const char *list = kolo_env("KOLO_IB_HCA");
    if (list == NULL) {
        return true;
    }
    const bool not_these = list[0] == '^';
    list += not_these;
    const bool whole = list[0] == '=';
    list += whole;
    bool found = false;
    while (*list != '\0') {
        const size_t len = strcspn(list, ",");
        found = found || names_port(list, len, whole, name, port);
        list += len + (list[len] == ',');
    }
    return found != not_these;
}

/* ---- sysfs ---- */

/* The first line of a file below the device's folder. */
static bool read_line(const struct ibv_device *device, const char *path, char *out, size_t room)
{
    char whole[IBV_SYSFS_PATH_MAX + 96];
    (void)snprintf(whole, sizeof whole, "%s/%s", device->ibdev_path, path);
    const int fd = device->ibdev_path[0] == '/' ? open(whole, O_RDONLY | O_CLOEXEC) : -1;
    const ssize_t n = fd >= 0 ? read(fd, out, room - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return n > 0;
}

static int node_of(const struct ibv_device *device)
{
    char line[32];
    return read_line(device, "device/numa_node", line, sizeof line) ? atoi(line) : -1;
}

/* ---- GIDs ---- */

static bool is_mapped_ipv4(const unsigned char gid[16])
{
    static const unsigned char prefix[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(gid, prefix, sizeof prefix) == 0;
}

/* The preference of a GID; 0: unusable. RoCE v2 over IPv4 comes first, because every network routes
 * it. IPv6 comes next, and link-local IPv6 last. */
static int rank_gid(const struct ibv_device *device, unsigned port, int index,
                    const unsigned char gid[16])
{
    static const unsigned char none[16];
    char path[64], type[32];
    (void)snprintf(path, sizeof path, "ports/%u/gid_attrs/types/%d", port, index);
    if (memcmp(gid, none, sizeof none) == 0 ||
        (read_line(device, path, type, sizeof type) && strstr(type, "v2") == NULL)) {
        return 0;
    }
    return is_mapped_ipv4(gid) ? 3 : gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80 ? 1 : 2;
}

static kolo_status choose_gid(struct kolo_verbs_rail *rail, int count)
{
    const struct kolo_verbs_library *lib = rail->lib;
    union ibv_gid gid;
    long given = 0;
    int best = 0;
    KOLO_TRY(kolo_env_int("KOLO_IB_GID_INDEX", -1, 65535, -1, &given));
    rail->gid_index = (int)given;
    for (int i = 0; i < count && given < 0 && rail->self.ethernet; i++) {
        const int rank = lib->query_gid(rail->context, rail->port, i, &gid) == 0
                             ? rank_gid(rail->context->device, rail->port, i, gid.raw)
                             : 0;
        rail->gid_index = rank > best ? i : rail->gid_index;
        best = rank > best ? rank : best;
    }
    if (rail->gid_index < 0 && rail->self.ethernet) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "%s port %u has no GID of RoCE v2", rail->name,
                         rail->port);
    }
    rail->gid_index = rail->gid_index < 0 ? 0 : rail->gid_index;
    if (lib->query_gid(rail->context, rail->port, rail->gid_index, &gid) != 0) {
        return kolo_fail(KOLO_ERR_INVALID, "%s port %u has no GID %d (KOLO_IB_GID_INDEX)",
                         rail->name, rail->port, rail->gid_index);
    }
    memcpy(rail->self.gid, gid.raw, sizeof rail->self.gid);
    return KOLO_OK;
}

/* A hash of the network of the interface that has this address. 0: no interface has it. */
static uint64_t network_of(const unsigned char gid[16])
{
    struct ifaddrs *all = NULL;
    uint64_t network = 0;
    if (getifaddrs(&all) != 0) {
        return 0;
    }
    for (const struct ifaddrs *at = all; at != NULL && network == 0; at = at->ifa_next) {
        const int family = at->ifa_addr != NULL ? at->ifa_addr->sa_family : 0;
        unsigned char net[32] = {0};
        if (family == AF_INET && is_mapped_ipv4(gid)) {
            struct sockaddr_in address, mask;
            memcpy(&address, at->ifa_addr, sizeof address);
            memcpy(&mask, at->ifa_netmask, sizeof mask);
            if (memcmp(&address.sin_addr, gid + 12, 4) == 0) {
                const uint32_t masked = address.sin_addr.s_addr & mask.sin_addr.s_addr;
                memcpy(net, &masked, 4);
                memcpy(net + 4, &mask.sin_addr, 4);
                network = kolo_hash(0, net, 8);
            }
        } else if (family == AF_INET6) {
            struct sockaddr_in6 address, mask;
            memcpy(&address, at->ifa_addr, sizeof address);
            memcpy(&mask, at->ifa_netmask, sizeof mask);
            if (memcmp(&address.sin6_addr, gid, 16) == 0) {
                for (int i = 0; i < 16; i++) {
                    net[i] = gid[i] & mask.sin6_addr.s6_addr[i];
                    net[16 + i] = mask.sin6_addr.s6_addr[i];
                }
                network = kolo_hash(0, net, 32);
            }
        }
    }
    freeifaddrs(all);
    return network;
}

static uint64_t subnet_of(const struct kolo_verbs_rail *rail)
{
    uint64_t subnet = rail->self.ethernet ? network_of(rail->self.gid) : 0;
    if (subnet == 0) { /* InfiniBand's prefix */
        memcpy(&subnet, rail->self.gid, sizeof subnet);
    }
    return subnet;
}

/* ---- opening ---- */

static uint32_t speed_mbps(const struct ibv_port_attr *port)
{
    static const struct {
        unsigned code, mbps;
    } lane[] = {{1, 2500},   {2, 5000},   {4, 10000},  {8, 10000},
                {16, 14063}, {32, 25781}, {64, 50000}, {128, 100000}};
    const unsigned width = port->active_width == 2    ? 4
                           : port->active_width == 4  ? 8
                           : port->active_width == 8  ? 12
                           : port->active_width == 16 ? 2
                                                      : 1;
    for (size_t i = 0; i < KOLO_LENGTH(lane); i++) {
        if (lane[i].code == port->active_speed) {
            return lane[i].mbps * width;
        }
    }
    return 10000;
}

static kolo_status make_queues(struct kolo_verbs_rail *rail)
{
    const struct kolo_verbs_library *lib = rail->lib;
    rail->pd = lib->alloc_pd(rail->context);
    rail->channel = lib->create_comp_channel(rail->context);
    if (rail->pd != NULL && rail->channel != NULL) {
        rail->cq = lib->create_cq(rail->context, FIRST_CQ, NULL, rail->channel, 0);
        rail->cq_size = FIRST_CQ;
    }
    if (rail->cq == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "verbs: %s port %u gives no %s: %s", rail->name,
                         rail->port,
                         rail->pd == NULL        ? "protection domain"
                         : rail->channel == NULL ? "completion channel"
                                                 : "completion queue",
                         kolo_why(errno));
    }
    (void)fcntl(rail->channel->fd, F_SETFL, O_NONBLOCK);
    (void)fcntl(rail->context->async_fd, F_SETFL, O_NONBLOCK);
    return KOLO_OK;
}

static void close_rail(struct kolo_verbs_rail *rail)
{
    const struct kolo_verbs_library *lib = rail->lib;
    if (rail->cq != NULL) {
        (void)lib->destroy_cq(rail->cq);
    }
    if (rail->channel != NULL) {
        (void)lib->destroy_comp_channel(rail->channel);
    }
    if (rail->pd != NULL) {
        (void)lib->dealloc_pd(rail->pd);
    }
    if (rail->context != NULL) {
        (void)lib->close_device(rail->context);
    }
    *rail = (struct kolo_verbs_rail){0};
}

/* INPROGRESS: the port is not usable. */
static kolo_status open_rail(const struct kolo_verbs_library *lib, struct ibv_device *device,
                             uint8_t port, struct kolo_verbs_rail *rail)
{
    struct ibv_port_attr attr;
    struct ibv_device_attr limits;
    long pkey = 0;
    kolo_status st = KOLO_INPROGRESS;
    *rail = (struct kolo_verbs_rail){.lib = lib, .port = port, .node = node_of(device)};
    (void)snprintf(rail->name, sizeof rail->name, "%s", lib->get_device_name(device));
    rail->context = lib->open_device(device);
    if (rail->context == NULL) {
        KOLO_LOG(INFO, NET, "NET/IB : %s cannot be opened: %s", rail->name, kolo_why(errno));
        return KOLO_INPROGRESS;
    }
    if (kolo_verbs_query_port(lib, rail->context, port, &attr) != 0 ||
        attr.state != IBV_PORT_ACTIVE || lib->query_device(rail->context, &limits) != 0) {
        goto err_close;
    }
    rail->self.ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    rail->self.lid = attr.lid;
    rail->self.mtu = (uint8_t)attr.active_mtu;
    rail->self.speed_mbps = speed_mbps(&attr);
    rail->max_message = attr.max_msg_sz > 0 ? attr.max_msg_sz : UINT32_C(1) << 30;
    KOLO_TRY_GOTO(st, kolo_env_int("KOLO_IB_PKEY", 0, 65535, 0, &pkey), err_close);
    rail->pkey_index = (uint16_t)pkey;
    KOLO_TRY_GOTO(st, choose_gid(rail, attr.gid_tbl_len), err_close);
    rail->self.subnet = subnet_of(rail);
    KOLO_TRY_GOTO(st, make_queues(rail), err_close);
    return KOLO_OK;

err_close:
    close_rail(rail);
    return st;
}

static void open_device(struct kolo_endpoint *ep, struct ibv_device *device, kolo_status *st)
{
    struct ibv_device_attr limits = {.phys_port_cnt = 0};
    const char *name = ep->lib->get_device_name(device);
    struct ibv_context *context = ep->lib->open_device(device);
    const bool known = context != NULL && ep->lib->query_device(context, &limits) == 0;
    if (context != NULL) {
        (void)ep->lib->close_device(context);
    }
    for (unsigned port = 1; known && port <= limits.phys_port_cnt; port++) {
        if (ep->nrails == KOLO_VERBS_RAILS || *st < 0 || !is_wanted(name, port)) {
            continue;
        }
        const kolo_status opened = open_rail(ep->lib, device, (uint8_t)port, &ep->rail[ep->nrails]);
        ep->nrails += opened == KOLO_OK;
        *st = opened == KOLO_ERR_INVALID || opened == KOLO_ERR_SYSTEM ? opened : *st;
    }
}

/* Without KOLO_IB_HCA, keep only the rails at this CPU's NUMA node. Keep all if none is there. */
static void keep_nearest(struct kolo_endpoint *ep)
{
    unsigned cpu = 0, node = 0;
    int near = 0, kept = 0;
    if (kolo_env("KOLO_IB_HCA") != NULL || getcpu(&cpu, &node) != 0) {
        return;
    }
    for (int i = 0; i < ep->nrails; i++) {
        near += ep->rail[i].node == (int)node;
    }
    for (int i = 0; i < ep->nrails && near > 0; i++) {
        if (ep->rail[i].node == (int)node) {
            ep->rail[kept++] = ep->rail[i];
        } else {
            close_rail(&ep->rail[i]);
        }
    }
    ep->nrails = near > 0 ? kept : ep->nrails;
}

kolo_status kolo_verbs_rails_open(struct kolo_endpoint *ep)
{
    int count = 0;
    kolo_status st = KOLO_OK;
    struct ibv_device **list = ep->lib->get_device_list(&count);
    for (int i = 0; list != NULL && i < count; i++) {
        open_device(ep, list[i], &st);
    }
    if (list != NULL) {
        ep->lib->free_device_list(list);
    }
    KOLO_TRY(st);
    keep_nearest(ep);
    if (ep->nrails == 0) {
        const char *wanted = kolo_env("KOLO_IB_HCA");
        return kolo_fail(
            KOLO_ERR_UNSUPPORTED, "verbs: none of %d RDMA devices has a port that is up%s%s", count,
            wanted != NULL ? " and fits KOLO_IB_HCA=" : "", wanted != NULL ? wanted : "");
    }
    for (int i = 0; i < ep->nrails; i++) {
        (void)snprintf(ep->via[i], sizeof ep->via[i], "NET/IB/%d", i);
    }
    return KOLO_OK;
}

void kolo_verbs_rails_close(struct kolo_endpoint *ep)
{
    for (int i = 0; i < ep->nrails; i++) {
        close_rail(&ep->rail[i]);
    }
    ep->nrails = 0;
}

/* ---- reachable ports ---- */

/* InfiniBand reaches its subnet. RoCE v2 can be routed to another network.
 *
 * But if any rails of the two ranks share a network, rails on different networks are taken to be
 * separate: `routed` is false then. */
static bool port_reaches(const struct kolo_verbs_port *a, const struct kolo_verbs_port *b,
                         bool routed)
{
    return a->ethernet == b->ethernet && (a->subnet == b->subnet || (routed && a->ethernet));
}

static bool any_shares(const struct kolo_verbs_address *low, const struct kolo_verbs_address *high)
{
    bool shares = false;
    for (int i = 0; i < low->nrails; i++) {
        for (int k = 0; k < high->nrails; k++) {
            shares = shares || port_reaches(&low->port[i], &high->port[k], false);
        }
    }
    return shares;
}

int kolo_verbs_rails_pair(const struct kolo_verbs_address *low,
                          const struct kolo_verbs_address *high, int pair[KOLO_VERBS_LANES][2])
{
    const bool routed = !any_shares(low, high);
    const int most = low->nrails > high->nrails ? low->nrails : high->nrails;
    const int each = low->lanes < high->lanes ? low->lanes : high->lanes;
    int count = 0;
    for (int k = 0; k < most * each && count < KOLO_VERBS_LANES; k++) {
        const int i = k % low->nrails;
        int fit[KOLO_VERBS_RAILS], nfit = 0;
        for (int j = 0; j < high->nrails; j++) {
            if (port_reaches(&low->port[i], &high->port[j], routed)) {
                fit[nfit++] = j;
            }
        }
        if (nfit > 0) {
            pair[count][0] = i;
            pair[count++][1] = fit[k % most % nfit];
        }
    }
    return count;
}

/* ---- events ---- */

/* Find the GID's index again: a port that comes back may have its GIDs in another order. */
static void find_gid(struct kolo_verbs_rail *rail, int count)
{
    union ibv_gid gid;
    for (int i = 0; i < count; i++) {
        if (rail->lib->query_gid(rail->context, rail->port, i, &gid) == 0 &&
            memcmp(gid.raw, rail->self.gid, sizeof gid.raw) == 0) {
            rail->gid_index = i;
            return;
        }
    }
}

bool kolo_verbs_rail_is_active(struct kolo_verbs_rail *rail)
{
    struct ibv_port_attr attr;
    const double now = kolo_now_us();
    if (now - rail->asked_us > ASK_US || rail->asked_us == 0) {
        rail->asked_us = now;
        rail->down = kolo_verbs_query_port(rail->lib, rail->context, rail->port, &attr) != 0 ||
                     attr.state != IBV_PORT_ACTIVE;
        if (!rail->down) {
            find_gid(rail, attr.gid_tbl_len);
        }
    }
    return !rail->down;
}

static void hear_event(struct kolo_verbs_rail *rail, const struct ibv_async_event *event)
{
    const bool of_port =
        event->event_type == IBV_EVENT_PORT_ACTIVE || event->event_type == IBV_EVENT_PORT_ERR ||
        event->event_type == IBV_EVENT_GID_CHANGE || event->event_type == IBV_EVENT_LID_CHANGE ||
        event->event_type == IBV_EVENT_PKEY_CHANGE;
    if (of_port && event->element.port_num != rail->port) {
        return;
    }
    KOLO_LOG(INFO, NET, "NET/IB : %s port %u: %s", rail->name, rail->port,
             rail->lib->event_type_str(event->event_type));
    rail->asked_us = 0; /* look again */
}

void kolo_verbs_rails_hear(struct kolo_endpoint *ep)
{
    for (int i = 0; i < ep->nrails; i++) {
        struct ibv_async_event event;
        while (ep->lib->get_async_event(ep->rail[i].context, &event) == 0) {
            hear_event(&ep->rail[i], &event);
            ep->lib->ack_async_event(&event);
        }
    }
}
