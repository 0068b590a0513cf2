// SPDX-License-Identifier: Apache-2.0
#include "core/agree/links.h"

#include "core/failure/failure.h"
#include "core/health/gone.h"
#include "plugin/catalogue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct kolo_agree_post {
    struct kolo_agree_post *next;
    struct kolo_req req;
    struct kolo_agree_frame *frame;
};

static size_t frame_bytes(const struct kolo_agree_links *l)
{
    return sizeof(struct kolo_agree_frame) + (size_t)l->comm->ranks.nranks;
}

static struct kolo_bytes bytes_of(const struct kolo_agree_links *l, struct kolo_agree_frame *frame)
{
    return (struct kolo_bytes){.at = frame, .bytes = frame_bytes(l), .count = 1};
}

struct kolo_agree_frame *kolo_agree_links_frame(const struct kolo_agree_links *l)
{
    return calloc(1, frame_bytes(l));
}

/* ---- what the transport reports ---- */

static void peer_lost(void *owner, int rank, const char *what, int error)
{
    struct kolo_agree_links *l = owner;
    struct kolo_agree_line *line = &l->line[rank];
    KOLO_LOG(INFO, NET, "comm %p rank %d: over the links of agreements, rank %d %s",
             (void *)l->comm, l->comm->ranks.rank, rank, what);
    switch (error) {
    case ESHUTDOWN:
        kolo_failure_peer_left(l->comm, rank);
        line->gone = true;
        break;
    case 0:
    case ECONNRESET:
    case EPIPE:
    case ECONNREFUSED:
        kolo_gone_note(l->comm, rank);
        line->gone = true;
        break;
    default:
        line->broken = error;
        line->ended = true;
    }
}

static void contact(void *owner, int rank)
{
    ((struct kolo_agree_links *)owner)->line[rank].calls = true;
}

/* ---- open and close ---- */

bool kolo_agree_links_are_needed(const struct kolo_comm *c)
{
    bool maps = false;
    for (int i = 0; i < c->links.nopened; i++) {
        maps = maps || (c->links.opened[i].transport->caps & KOLO_CAP_MAP) != 0;
    }
    return c->ranks.nranks > 1 && (c->ranks.nhosts > 1 || !maps);
}

static kolo_status open_endpoint(struct kolo_agree_links *l, struct kolo_agree_address *out)
{
    size_t len = sizeof out->bytes;
    KOLO_TRY(l->transport->open(&l->env, &l->endpoint));
    KOLO_TRY(l->transport->address(l->endpoint, out->bytes, &len));
    out->len = (uint32_t)len;
    return KOLO_OK;
}

kolo_status kolo_agree_links_open(struct kolo_comm *c, struct kolo_agree_address *out)
{
    struct kolo_agree_links *l = calloc(1, sizeof *l);
    *out = (struct kolo_agree_address){0};
    if (l == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the links of agreements");
    }
    pthread_mutex_init(&l->lock, NULL);
    c->agree_links = l;
    l->comm = c;
    l->line = calloc((size_t)c->ranks.nranks, sizeof *l->line);
    l->decision = kolo_agree_links_frame(l);
    l->transport = kolo_transport_find("tcp");
    l->env = (struct kolo_env){.size = sizeof l->env,
                               .rank = c->links.env.rank,
                               .nranks = c->links.env.nranks,
                               .comm = c->links.env.comm,
                               .self = c->links.env.self,
                               .log = c->links.env.log,
                               .fail = c->links.env.fail,
                               .nhosts = c->links.env.nhosts,
                               .timeout_ms = c->links.env.timeout_ms,
                               .secret = c->links.env.secret,
                               .route_hint = c->links.env.route_hint,
                               .on_peer_lost = peer_lost,
                               .on_contact = contact,
                               .owner = l};
    if (l->line == NULL || l->decision == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", c->ranks.nranks);
    }
    return open_endpoint(l, out);
}

static void hang_up(struct kolo_agree_links *l, int q)
{
    struct kolo_agree_line *line = &l->line[q];
    if (line->link != NULL) { /* that ends all requests */
        l->transport->disconnect(line->link);
    }
    for (struct kolo_agree_post *post; (post = line->first) != NULL;) {
        line->first = post->next;
        free(post->frame);
        free(post);
    }
    line->link = NULL;
    line->posted = false;
}

void kolo_agree_links_close(struct kolo_comm *c)
{
    struct kolo_agree_links *l = c->agree_links;
    if (l == NULL) {
        return;
    }
    for (int q = 0; l->line != NULL && q < c->ranks.nranks; q++) {
        hang_up(l, q);
        free(l->line[q].frame);
    }
    if (l->endpoint != NULL) {
        l->transport->close(l->endpoint);
    }
    pthread_mutex_destroy(&l->lock);
    free(l->decision);
    free(l->line);
    free(l);
    c->agree_links = NULL;
}

/* ---- frames ---- */

static void receive_next(struct kolo_agree_links *l, int q)
{
    struct kolo_agree_line *line = &l->line[q];
    const struct kolo_bytes to = bytes_of(l, line->frame);
    line->req = (struct kolo_req){0};
    line->posted = l->transport->recv(line->link, &to, &line->req) == KOLO_OK;
    if (!line->posted && !line->gone && line->broken == 0) {
        line->broken = EIO;
    }
}

void kolo_agree_links_meet(struct kolo_agree_links *l, int q)
{
    struct kolo_agree_line *line = &l->line[q];
    struct kolo_peer peer = l->comm->member[q].peer;
    /* To end a link that stands would tell the peer that this rank has left. */
    if (line->gone || (line->link != NULL && !line->ended)) {
        return;
    }
    hang_up(l, q);
    line->broken = 0;
    line->ended = false;
    line->calls = false;
    line->frame = line->frame != NULL ? line->frame : kolo_agree_links_frame(l);
    peer.address = line->address.bytes;
    peer.address_len = kolo_min(line->address.len, sizeof line->address.bytes);
    if (line->frame == NULL || l->transport->connect(l->endpoint, &peer, &line->link) != KOLO_OK) {
        line->broken = line->frame == NULL ? ENOMEM : EPROTO;
        return;
    }
    receive_next(l, q);
}

void kolo_agree_links_send(struct kolo_agree_links *l, int q, const struct kolo_agree_frame *frame)
{
    struct kolo_agree_line *line = &l->line[q];
    if (line->gone || line->broken != 0 || line->link == NULL) {
        return;
    }
    struct kolo_agree_post *post = calloc(1, sizeof *post);
    struct kolo_agree_frame *copy = kolo_agree_links_frame(l);
    if (post == NULL || copy == NULL) {
        free(post);
        free(copy);
        line->broken = ENOMEM;
        return;
    }
    memcpy(copy, frame, frame_bytes(l));
    post->frame = copy;
    const struct kolo_bytes from = bytes_of(l, copy);
    if (l->transport->send(line->link, &from, &post->req) != KOLO_OK) {
        post->req.status = KOLO_ERR_LINK;
    }
    *(line->first == NULL ? &line->first : &line->last->next) = post;
    line->last = post;
}

static void free_sent(struct kolo_agree_line *line)
{
    for (struct kolo_agree_post *post;
         (post = line->first) != NULL && post->req.status != KOLO_INPROGRESS;) {
        line->first = post->next;
        free(post->frame);
        free(post);
    }
}

void kolo_agree_links_progress(struct kolo_agree_links *l)
{
    (void)l->transport->progress(l->endpoint, 64);
    for (int q = 0; q < l->comm->ranks.nranks; q++) {
        free_sent(&l->line[q]);
        if (l->line[q].calls) {
            kolo_agree_links_meet(l, q);
        }
    }
}

const struct kolo_agree_frame *kolo_agree_links_look(struct kolo_agree_links *l, int q)
{
    struct kolo_agree_line *line = &l->line[q];
    if (!line->posted || line->req.status == KOLO_INPROGRESS) {
        return NULL;
    }
    if (line->req.status == KOLO_OK) {
        return line->frame;
    }
    line->posted = false;
    if (!line->gone && line->broken == 0) {
        line->broken = EBADMSG;
    }
    return NULL;
}

void kolo_agree_links_drop(struct kolo_agree_links *l, int q)
{
    receive_next(l, q);
}

bool kolo_agree_links_are_clear(const struct kolo_agree_links *l)
{
    for (int q = 0; q < l->comm->ranks.nranks; q++) {
        const struct kolo_agree_line *line = &l->line[q];
        if (line->first != NULL && !line->gone && line->broken == 0) {
            return false;
        }
    }
    return true;
}
