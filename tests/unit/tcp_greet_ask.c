// SPDX-License-Identifier: Apache-2.0
#include "tcp_greet_ask.h"

#include "plugin/catalogue.h"
#include "transports/tcp/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { LONGEST_US = 5 * 1000 * 1000 };

static const unsigned char secret[KOLO_SECRET_BYTES] = {1};

struct greeted { /* rank 1, which runs the transport */
    const struct kolo_transport *tcp;
    struct kolo_endpoint *ep;
    int lost; /* the errno that it reports of rank 0 */
};

static void note_lost(void *owner, int rank, const char *what, int error)
{
    (void)rank;
    (void)what;
    ((struct greeted *)owner)->lost = error;
}

static kolo_status say(kolo_status status, const char *text)
{
    return kolo_fail(status, "%s", text);
}

static void drop(const char *text)
{
    (void)text;
}

static int listen_as(struct kolo_inet *place)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) != 0 || listen(fd, 4) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0) {
        abort();
    }
    *place = (struct kolo_inet){.family = AF_INET, .port = ntohs(at.sin_port)};
    memcpy(place->ip, &at.sin_addr, 4);
    return fd;
}

static int accept_guest(struct greeted *g, int listener)
{
    const double until_us = kolo_now_us() + LONGEST_US;
    int fd = -1;
    while (fd < 0 && kolo_now_us() < until_us) {
        (void)g->tcp->progress(g->ep, 8);
        fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    }
    return fd;
}

static bool hear(struct greeted *g, int fd, void *out, size_t bytes)
{
    const double until_us = kolo_now_us() + LONGEST_US;
    size_t got = 0;
    while (got < bytes && kolo_now_us() < until_us) {
        (void)g->tcp->progress(g->ep, 8);
        const ssize_t n = recv(fd, (char *)out + got, bytes - got, 0);
        got += n > 0 ? (size_t)n : 0;
    }
    return got == bytes;
}

/* Rank 0's part: it refuses the connection in favour of its own, and dies before it makes that. */
static bool refuse_and_die(struct greeted *g, int listener)
{
    struct kolo_tcp_hello hello;
    struct kolo_tcp_challenge challenge = {{2}, {0}};
    unsigned char text[8 + sizeof hello + sizeof challenge.nonce] = "listens";
    unsigned char proof[KOLO_PROOF_BYTES];
    const unsigned char answer = KOLO_TCP_REFUSED;
    const int fd = accept_guest(g, listener);
    bool done = fd >= 0 && hear(g, fd, &hello, sizeof hello);
    memcpy(text + 8, &hello, sizeof hello);
    memcpy(text + 8 + sizeof hello, challenge.nonce, sizeof challenge.nonce);
    done = done && kolo_prove(secret, text, sizeof text, challenge.proof) &&
           send(fd, &challenge, sizeof challenge, 0) == (ssize_t)sizeof challenge &&
           hear(g, fd, proof, sizeof proof) && send(fd, &answer, 1, 0) == 1;
    (void)close(fd);
    (void)close(listener);
    return done;
}

int greet_one_who_refuses_and_dies(void)
{
    struct greeted g = {.tcp = kolo_transport_find("tcp")};
    struct kolo_tcp_address address = {KOLO_TCP_MAGIC, 1, 0, {0}};
    const struct kolo_peer self = {.size = sizeof self, .rank = 1, .pid = getpid(), .host = 1};
    const struct kolo_peer peer = {.size = sizeof peer,
                                   .rank = 0,
                                   .pid = getpid(),
                                   .host = 1,
                                   .address = &address,
                                   .address_len = sizeof address};
    const struct kolo_env env = {.size = sizeof env,
                                 .rank = 1,
                                 .nranks = 2,
                                 .comm = 7,
                                 .self = &self,
                                 .log = drop,
                                 .fail = say,
                                 .timeout_ms = 5000,
                                 .secret = secret,
                                 .on_peer_lost = note_lost,
                                 .owner = &g};
    struct kolo_link *link = NULL;
    char byte = 0;
    const struct kolo_bytes to = {.at = &byte, .bytes = 1, .count = 1};
    struct kolo_req req = {0}; /* a link without requests rests */
    const int listener = listen_as(&address.place);
    if (g.tcp->open(&env, &g.ep) != KOLO_OK || g.tcp->connect(g.ep, &peer, &link) != KOLO_OK ||
        g.tcp->recv(link, &to, &req) != KOLO_OK || !refuse_and_die(&g, listener)) {
        return -1;
    }
    const double until_us = kolo_now_us() + LONGEST_US;
    while (g.lost == 0 && kolo_now_us() < until_us) {
        (void)g.tcp->progress(g.ep, 8);
    }
    g.tcp->disconnect(link);
    g.tcp->close(g.ep);
    return g.lost;
}
