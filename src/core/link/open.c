// SPDX-License-Identifier: Apache-2.0
/* Transports of a communicator: which are opened, what addresses they give, and which one reaches a
 * peer best. */
#include "core/link/open.h"

#include "plugin/catalogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static kolo_status open_transport(struct kolo_comm *c, const struct kolo_transport *transport)
{
    struct kolo_endpoint *device = NULL;
    if (c->links.nopened == KOLO_TRANSPORTS_MAX) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "more than %d transports", KOLO_TRANSPORTS_MAX);
    }
    const kolo_status st = transport->open(&c->links.env, &device);
    if (st < 0) {
        KOLO_LOG(INFO, NET, "transport %s is not used: %s", transport->base.name,
                 kolo_error_text());
        return st;
    }
    c->links.opened[c->links.nopened++] = (struct kolo_opened){transport, device};
    return KOLO_OK;
}

static void say_unused(struct kolo_comm *c, const struct kolo_transport *transport)
{
    (void)snprintf(c->links.unused, sizeof c->links.unused, "; %s is not used: %s",
                   transport->base.name, kolo_error_text());
}

/* Those that map memory, or those that only carry messages. One that cannot open is done without.
 * True if there was none such. */
static bool open_all(struct kolo_comm *c, bool maps)
{
    bool all = true;
    for (int i = 0; i < kolo_transport_count_all(); i++) {
        const struct kolo_transport *transport = kolo_transport_at(i);
        if (((transport->caps & KOLO_CAP_MAP) != 0) == maps &&
            open_transport(c, transport) != KOLO_OK) {
            all = false;
            say_unused(c, transport);
        }
    }
    return all;
}

/* The transports of config.transport in its order, or all that this communicator may need. */
kolo_status kolo_links_open(struct kolo_comm *c)
{
    char *list = strdup(c->options.transport_text), *rest = NULL;
    kolo_status st = list != NULL ? KOLO_OK : kolo_fail(KOLO_ERR_SYSTEM, "out of memory");
    for (char *word = list != NULL ? strtok_r(list, ",", &rest) : NULL;
         word != NULL && st == KOLO_OK; word = strtok_r(NULL, ",", &rest)) {
        const struct kolo_transport *transport = kolo_transport_find(word);
        st = transport != NULL ? open_transport(c, transport)
                               : kolo_fail(KOLO_ERR_INVALID,
                                           "no transport is called %s (config.transport or "
                                           "KOLO_TRANSPORT is \"%s\")",
                                           word, c->options.transport_text);
    }
    if (st == KOLO_OK && c->options.transport_text[0] == '\0') {
        const bool all = open_all(c, true);
        if (c->ranks.nhosts > 1 || !all) { /* else nobody would use them */
            (void)open_all(c, false);
        }
    }
    free(list);
    if (st == KOLO_OK && c->links.nopened == 0) {
        st = kolo_fail(KOLO_ERR_UNSUPPORTED, "no transport could be opened%s", c->links.unused);
    }
    return st;
}

/* ---- the best one ---- */

/* Where rank q's address for a transport is; -1: it has not opened it. */
static int part_of(const struct kolo_link_address *from, const struct kolo_transport *transport)
{
    char name[KOLO_TRANSPORT_NAME] = "";
    strncpy(name, transport->base.name, sizeof name - 1);
    for (int i = 0; i < KOLO_TRANSPORTS_MAX; i++) {
        const bool within = from->part[i].at + from->part[i].len <= KOLO_LINK_ADDRESS_BYTES;
        if (within && memcmp(from->part[i].name, name, sizeof name) == 0) {
            return i;
        }
    }
    return -1;
}

static void use_address(struct kolo_member *m, const struct kolo_link_address *from, int part)
{
    m->peer.address = from->bytes + from->part[part].at;
    m->peer.address_len = from->part[part].len;
}

/* Of the transports that reach rank q, the one with the highest score. */
kolo_status kolo_links_choose(struct kolo_comm *c, int q, const struct kolo_link_address *from)
{
    struct kolo_member *m = &c->member[q];
    for (int i = 0; i < c->links.nopened; i++) {
        struct kolo_reach reach = {.size = sizeof reach};
        const int part = part_of(from, c->links.opened[i].transport);
        if (part < 0) {
            continue;
        }
        use_address(m, from, part);
        if (c->links.opened[i].transport->probe(c->links.opened[i].endpoint, &m->peer, &reach) <
            0) {
            say_unused(c, c->links.opened[i].transport);
            continue;
        }
        if (reach.caps == 0 || (m->transport != NULL && reach.score <= m->reach.score)) {
            continue;
        }
        m->transport = c->links.opened[i].transport;
        m->device = c->links.opened[i].endpoint;
        m->reach = reach;
    }
    if (m->transport == NULL) {
        return kolo_fail(
            KOLO_ERR_UNSUPPORTED, "no transport reaches rank %d (it is %s this host)%s", q,
            m->peer.host == c->member[c->ranks.rank].peer.host ? "on" : "not on", c->links.unused);
    }
    use_address(m, from, part_of(from, m->transport));
    return KOLO_OK;
}

/* ---- addresses ---- */

static kolo_status add_address(const struct kolo_opened *opened, int part, size_t *used,
                               struct kolo_link_address *out)
{
    const char *name = opened->transport->base.name;
    size_t len = KOLO_LINK_ADDRESS_BYTES - *used;
    KOLO_TRY(opened->transport->address(opened->endpoint, out->bytes + *used, &len));
    if (len > KOLO_LINK_ADDRESS_BYTES - *used) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "the address of transport %s has %zu bytes; %zu fit",
                         name, len, KOLO_LINK_ADDRESS_BYTES - *used);
    }
    strncpy(out->part[part].name, name, KOLO_TRANSPORT_NAME - 1);
    out->part[part].at = (uint16_t)*used;
    out->part[part].len = (uint16_t)len;
    *used += len;
    return KOLO_OK;
}

kolo_status kolo_links_address(const struct kolo_comm *c, struct kolo_link_address *out)
{
    size_t used = 0;
    for (int i = 0; i < c->links.nopened; i++) {
        KOLO_TRY(add_address(&c->links.opened[i], i, &used, out));
    }
    return KOLO_OK;
}

/* ---- closing ---- */

void kolo_links_close(struct kolo_comm *c)
{
    for (int q = 0; c->member != NULL && q < c->ranks.nranks; q++) {
        if (c->member[q].link != NULL) {
            c->member[q].transport->disconnect(c->member[q].link);
        }
    }
    if (c->links.mapper != NULL) {
        if (c->links.slots.ptr != NULL) {
            c->links.mapper->transport->unmap(c->links.mapper->endpoint, &c->links.slots);
        }
        if (c->links.region.ptr != NULL) {
            c->links.mapper->transport->unmap(c->links.mapper->endpoint, &c->links.region);
        }
    } else {
        free(c->links.region.ptr);
    }
    for (int i = 0; i < c->links.nopened; i++) {
        c->links.opened[i].transport->close(c->links.opened[i].endpoint);
    }
}
