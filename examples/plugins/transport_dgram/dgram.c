// SPDX-License-Identifier: Apache-2.0
/* A transport as a plug-in: libkolo_transport_dgram.so. Messages only, between ranks of one host.
 *
 * Each (from, to, channel) is an abstract UNIX datagram socket, bound by the receiver and named by
 * the communicator. Such datagrams are reliable and ordered, and a full queue is EAGAIN. So this
 * file only cuts messages: an empty one becomes one empty datagram. It is an example: the
 * names are not secret, so anybody on the host may send. See unix(7). */
#include <kolo/plugin.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PIECE_BYTES = 32768 };

/* One direction of one channel. */
struct way {
    int fd; /* -1: not opened */
    bool connected;
    struct kolo_req *first, *last;
};

struct kolo_endpoint {
    struct kolo_env env;
    struct kolo_link *links;
    char piece[PIECE_BYTES];
};

struct kolo_link {
    struct kolo_link *next;
    struct kolo_endpoint *ep;
    int peer;
    atomic_int why; /* abort()'s status, or 0 */
    struct way out[KOLO_CHANNELS], in[KOLO_CHANNELS];
};

static kolo_status dgram_open(const struct kolo_env *env, struct kolo_endpoint **out)
{
    struct kolo_endpoint *ep = calloc(1, sizeof *ep);
    if (ep == NULL) {
        return env->fail(KOLO_ERR_SYSTEM, "dgram: no memory for an endpoint");
    }
    ep->env = *env;
    *out = ep;
    return KOLO_OK;
}

static void dgram_close(struct kolo_endpoint *ep)
{
    free(ep);
}

static kolo_status dgram_probe(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                               struct kolo_reach *out)
{
    const bool here = peer->host == ep->env.self->host;
    *out = (struct kolo_reach){.size = sizeof *out,
                               .caps = here ? KOLO_CAP_HOST | KOLO_CAP_MESSAGE : 0,
                               .latency_us = 10,
                               .bandwidth_gbs = 1,
                               .score = 1,
                               .via = "DGRAM"};
    return KOLO_OK;
}

/* The communicator and the ranks make the name. */
static kolo_status dgram_address(struct kolo_endpoint *ep, void *buf, size_t *len)
{
    (void)ep;
    (void)buf;
    *len = 0;
    return KOLO_OK;
}

static kolo_status dgram_connect(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                                 struct kolo_link **out)
{
    struct kolo_link *link = calloc(1, sizeof *link);
    if (link == NULL) {
        return ep->env.fail(KOLO_ERR_SYSTEM, "dgram: no memory for a link");
    }
    for (int c = 0; c < KOLO_CHANNELS; c++) {
        link->out[c].fd = link->in[c].fd = -1;
    }
    link->ep = ep;
    link->peer = peer->rank;
    link->next = ep->links;
    ep->links = link;
    *out = link;
    return KOLO_OK;
}

static void end_all(struct way *way, kolo_status why)
{
    while (way->first != NULL) {
        struct kolo_req *req = way->first;
        way->first = req->next;
        req->status = why; /* from here on its owner owns it again */
    }
}

static void dgram_disconnect(struct kolo_link *link)
{
    struct kolo_link **at = &link->ep->links;
    while (*at != link) {
        at = &(*at)->next;
    }
    *at = link->next;
    for (int c = 0; c < KOLO_CHANNELS; c++) {
        struct way *ways[] = {&link->out[c], &link->in[c]};
        for (int i = 0; i < 2; i++) {
            end_all(ways[i], KOLO_ERR_ABORTED);
            if (ways[i]->fd >= 0) {
                close(ways[i]->fd);
            }
        }
    }
    free(link);
}

/* Open the socket of a way. The receiver binds it; after that the sender can connect to it. */
static kolo_status open_way(struct kolo_link *link, bool sends, uint32_t channel)
{
    struct way *way = sends ? &link->out[channel] : &link->in[channel];
    const int me = link->ep->env.rank;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int len = snprintf(name.sun_path + 1, sizeof name.sun_path - 1,
                             "kolo-dgram-%llx-%d-%d-%u", (unsigned long long)link->ep->env.comm,
                             sends ? me : link->peer, sends ? link->peer : me, channel);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
    if (way->fd < 0) {
        way->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    }
    if (way->fd < 0) {
        return link->ep->env.fail(KOLO_ERR_SYSTEM, "dgram: no socket");
    }
    if (!way->connected) {
        const struct sockaddr *address = (const struct sockaddr *)&name;
        way->connected =
            (sends ? connect(way->fd, address, size) : bind(way->fd, address, size)) == 0;
        if (!way->connected && !(sends && errno == ECONNREFUSED)) {
            return link->ep->env.fail(KOLO_ERR_LINK, "dgram: the name cannot be used");
        }
    }
    return KOLO_OK;
}

/* Copy between the piece and bytes [req->moved, +len) of the request's runs. */
static void copy_piece(struct kolo_req *req, char *piece, size_t len, bool to_piece)
{
    const struct kolo_bytes *data = &req->data;
    for (size_t done = 0, part = 0; done < len; done += part) {
        const size_t at = req->moved + done;
        char *run = (char *)data->at + at / data->bytes * data->stride + at % data->bytes;
        part = data->bytes - at % data->bytes;
        part = part < len - done ? part : len - done;
        memcpy(to_piece ? piece + done : run, to_piece ? run : piece + done, part);
    }
}

/* Move one piece of the first request. 1: one moved. 0: none can move now. < 0: a status. */
static int move_piece(struct kolo_link *link, struct way *way, bool sends)
{
    struct kolo_req *req = way->first;
    char *piece = link->ep->piece;
    const size_t left = req->bytes - req->moved;
    const size_t len = left < PIECE_BYTES ? left : PIECE_BYTES;
    ssize_t n = 0;
    if (sends) {
        copy_piece(req, piece, len, true);
        n = send(way->fd, piece, len, MSG_NOSIGNAL);
    } else {
        n = recv(way->fd, piece, PIECE_BYTES, 0);
    }
    if (n < 0) {
        const bool wait = errno == EAGAIN || errno == EINTR || errno == ENOBUFS;
        return wait ? 0 : KOLO_ERR_LINK;
    }
    if ((size_t)n != len) {
        return KOLO_ERR_MISMATCH;
    }
    if (!sends) {
        copy_piece(req, piece, len, false);
    }
    req->moved += len;
    if (req->moved == req->bytes) {
        way->first = req->next;
        req->status = KOLO_OK;
    }
    return 1;
}

/* Move the pieces that can move now, and return their number. An error ends the link. */
static int advance_channel(struct kolo_link *link, bool sends, uint32_t channel)
{
    struct way *way = sends ? &link->out[channel] : &link->in[channel];
    int moved = 0;
    while (way->first != NULL) {
        int status = way->connected ? KOLO_OK : (int)open_way(link, sends, channel);
        if (status == 0 && way->connected) {
            status = move_piece(link, way, sends);
        }
        if (status < 0) {
            atomic_store(&link->why, status);
        }
        if (status <= 0) {
            break;
        }
        moved++;
    }
    return moved;
}

static int dgram_progress(struct kolo_endpoint *ep, int budget)
{
    int moved = 0;
    for (struct kolo_link *link = ep->links; link != NULL && moved < budget; link = link->next) {
        for (uint32_t c = 0; c < KOLO_CHANNELS; c++) {
            const kolo_status why = (kolo_status)atomic_load(&link->why);
            if (why != KOLO_OK) {
                end_all(&link->out[c], why);
                end_all(&link->in[c], why);
            } else {
                moved += advance_channel(link, true, c) + advance_channel(link, false, c);
            }
        }
    }
    return moved;
}

static kolo_status post_request(struct kolo_link *link, bool sends, const struct kolo_bytes *data,
                                struct kolo_req *req)
{
    const kolo_status why = (kolo_status)atomic_load(&link->why);
    if (why != KOLO_OK) {
        return link->ep->env.fail(why, "dgram: the link has ended");
    }
    if (req->channel >= KOLO_CHANNELS) {
        return link->ep->env.fail(KOLO_ERR_INVALID, "dgram: there is no such channel");
    }
    struct way *way = sends ? &link->out[req->channel] : &link->in[req->channel];
    const kolo_status status = open_way(link, sends, req->channel);
    if (status < 0) {
        return status;
    }
    req->status = KOLO_INPROGRESS;
    req->bytes = data->bytes * data->count;
    req->moved = 0;
    req->data = *data;
    req->next = NULL;
    *(way->first == NULL ? &way->first : &way->last->next) = req;
    way->last = req;
    return KOLO_OK;
}

static kolo_status dgram_send(struct kolo_link *link, const struct kolo_bytes *src,
                              struct kolo_req *req)
{
    return post_request(link, true, src, req);
}

static kolo_status dgram_recv(struct kolo_link *link, const struct kolo_bytes *dst,
                              struct kolo_req *req)
{
    return post_request(link, false, dst, req);
}

static void dgram_abort(struct kolo_link *link, kolo_status why)
{
    atomic_store(&link->why, (int)why);
}

KOLO_EXPORT
extern const struct kolo_transport kolo_transport_v1;
const struct kolo_transport kolo_transport_v1 = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_transport), "dgram"},
    .caps = KOLO_CAP_HOST | KOLO_CAP_MESSAGE,
    .open = dgram_open,
    .close = dgram_close,
    .probe = dgram_probe,
    .address = dgram_address,
    .connect = dgram_connect,
    .disconnect = dgram_disconnect,
    .send = dgram_send,
    .recv = dgram_recv,
    .progress = dgram_progress,
    .abort = dgram_abort,
};
