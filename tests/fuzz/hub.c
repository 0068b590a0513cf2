// SPDX-License-Identifier: Apache-2.0
// covers: src/boot/hub.c src/boot/hub_job.c src/boot/hub_text.c
/* The hub of a meeting point: what ranks, and whoever else connects, may send to it.
 *
 * Input: orders, a byte each: connection (2 bits), what (3): 0 connect, 1 an honest HELLO, 2 an
 * honest proof, 3 an honest contribution, 4 BYE, 5 end the connection, 6 any bytes, 7 a header of
 * any type and length. A byte of argument follows, and the bytes; that of a connection says whether
 * both ends encrypt. Between orders the hub reads. */
#define kolo_boot_hub_start fuzzed_hub_start /* the library has it, too */
#include "boot/hub.c"
#undef kolo_boot_hub_start

#include "target.h"

enum { CONNECTIONS = 4, BYTES_MOST = 255 };

struct stranger { /* the other end of a connection */
    int fd;       /* -1: none */
    struct kolo_boot_hello hello;
    struct kolo_boot_guard guard;
    uint32_t seq;
};

struct play {
    struct kolo_hub *hub;
    struct stranger at[CONNECTIONS];
};

static void put(struct stranger *s, enum kolo_boot_type type, uint32_t seq, const void *body,
                size_t len)
{
    struct kolo_boot_header header = kolo_boot_header_make(type, seq, len);
    unsigned char bytes[BYTES_MOST];
    (void)kolo_boot_mask(&s->guard, type, body, len, bytes);
    (void)kolo_boot_sum(bytes, len, header.sum);
    kolo_boot_seal(&s->guard, &header);
    (void)!send(s->fd, &header, sizeof header, MSG_NOSIGNAL);
    (void)!send(s->fd, bytes, len, MSG_NOSIGNAL);
}

_Static_assert(sizeof(struct kolo_boot_hello) <= BYTES_MOST, "the longest body of all");

static void connect_one(const struct play *p, struct stranger *s, bool net)
{
    int fd[2];
    if (s->fd >= 0) {
        return;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) != 0) {
        abort();
    }
    *s = (struct stranger){.fd = fd[1]};
    (void)kolo_boot_guard_begin(&s->guard, &p->hub->meet, false);
    s->guard.masks = net && p->hub->encrypts;
    add_conn(p->hub, fd[0], net);
}

/* The argument says which rank of how many. */
static void say_hello(struct stranger *s, const struct kolo_hub *hub, unsigned arg)
{
    s->hello = (struct kolo_boot_hello){.version = KOLO_VERSION,
                                        .nranks = (int32_t)(1 + (arg >> 4)),
                                        .rank = (int32_t)(arg & 15),
                                        .timeout_ms = 1000,
                                        .left_ms = 1000,
                                        .name = kolo_boot_name_hash(&hub->meet)};
    put(s, KOLO_BOOT_HELLO, 0, &s->hello, sizeof s->hello);
    (void)kolo_boot_guard_turn(&s->guard, &s->hello, sizeof s->hello);
}

static void say_proof(struct stranger *s)
{
    struct {
        struct kolo_boot_header header;
        struct kolo_boot_challenge challenge;
    } came;
    if (recv(s->fd, &came, sizeof came, 0) == (ssize_t)sizeof came &&
        kolo_boot_guard_turn(&s->guard, &came.challenge, sizeof came.challenge)) {
        put(s, KOLO_BOOT_PROVE, 0, NULL, 0);
    }
}

static void obey(struct play *p, unsigned order, unsigned arg, const uint8_t *bytes, size_t len)
{
    struct stranger *s = &p->at[order % CONNECTIONS];
    const unsigned what = order >> 2 & 7;
    if (what != 0 && s->fd < 0) {
        return;
    }
    switch (what) {
    case 0:
        connect_one(p, s, (arg & 1) != 0);
        break;
    case 1:
        say_hello(s, p->hub, arg);
        break;
    case 2:
        say_proof(s);
        break;
    case 3:
        put(s, arg % 2 == 0 ? KOLO_BOOT_GATHER : KOLO_BOOT_SPREAD, s->seq++, bytes, len);
        break;
    case 4:
        put(s, KOLO_BOOT_BYE, 0, NULL, 0);
        break;
    case 5:
        close(s->fd);
        s->fd = -1;
        break;
    case 6:
        (void)!send(s->fd, bytes, len, MSG_NOSIGNAL);
        break;
    default:
        put(s, (enum kolo_boot_type)(arg & 15), arg >> 4, bytes, len);
        break;
    }
}

/* As serve_once(), without its sleep. */
static void serve(const struct play *p)
{
    char scrap[4096];
    struct kolo_hub *hub = p->hub;
    for (size_t i = 0, count = hub->nconns; i < count; i++) {
        if (hub->conns[i]->fd >= 0 && hub->conns[i]->out_len > 0) {
            kolo_hub_flush(hub->conns[i]);
        }
        if (hub->conns[i]->fd >= 0) {
            read_conn(hub, hub->conns[i]);
        }
    }
    kolo_hub_part(hub);
    close_ended(hub);
    for (int i = 0; i < CONNECTIONS; i++) { /* a challenge stays for the proof */
        const struct stranger *s = &p->at[i];
        while (s->fd >= 0 && hub->nranks > 0 &&
               recv(s->fd, scrap, sizeof scrap, MSG_DONTWAIT) > 0) {
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct play p = {.hub = calloc(1, sizeof *p.hub),
                     .at = {{.fd = -1}, {.fd = -1}, {.fd = -1}, {.fd = -1}}};
    if (p.hub == NULL || !has_room(p.hub)) {
        abort();
    }
    strcpy(p.hub->meet.name, "fuzz");
    p.hub->encrypts = true;
    p.hub->listener[0] = p.hub->listener[1] = p.hub->reserved_fd = p.hub->host_rank = -1;
    for (size_t at = 0; at + 2 <= size;) {
        const unsigned order = data[at], arg = data[at + 1];
        const size_t len = (order >> 2 & 7) == 6 || (order >> 2 & 7) == 7 || (order >> 2 & 7) == 3
                               ? kolo_min(arg, size - at - 2)
                               : 0;
        obey(&p, order, arg, data + at + 2, len);
        at += 2 + len;
        serve(&p);
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        if (p.at[i].fd >= 0) {
            close(p.at[i].fd);
        }
    }
    serve(&p);
    hub_free(p.hub);
    return 0;
}
