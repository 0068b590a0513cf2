// SPDX-License-Identifier: Apache-2.0
/* The floor of TCP: two ranks with one connection send bare bytes from buffer to buffer. Rank 0 listens
 * on the loopback, or on KOLO_COMPARE_ADDRESS. A broadcast is one message. A short all-reduce is an
 * exchange and a sum. */
#include "sum.h"
#include "worker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_EXCHANGED = 64 << 10 };

static int wire = -1;
static char *other; /* received data, to be added */

static int listen_here(struct sockaddr_in *at)
{
    socklen_t len = sizeof *at;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool good = fd >= 0 && bind(fd, (struct sockaddr *)at, len) == 0 && listen(fd, 1) == 0 &&
                      getsockname(fd, (struct sockaddr *)at, &len) == 0;
    return good ? fd : -1;
}

static bool start(struct compare_team *team, char *version, size_t cap)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int on = 1;
    const char *address = getenv("KOLO_COMPARE_ADDRESS");
    if (team->nranks != 2 || (address != NULL && inet_pton(AF_INET, address, &at.sin_addr) != 1)) {
        fprintf(stderr, "compare_wire: it has two ranks, and an address of IPv4\n");
        return false;
    }
    const int listener = team->rank == 0 ? listen_here(&at) : -1;
    at.sin_port = (in_port_t)compare_team_decide(team, at.sin_port);
    if (team->rank == 0) {
        wire = listener >= 0 ? accept(listener, NULL, NULL) : -1;
        close(listener);
    } else {
        wire = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(wire, (struct sockaddr *)&at, sizeof at) != 0) {
            wire = -1;
        }
    }
    other = malloc(MOST_EXCHANGED);
    if (wire < 0 || other == NULL || setsockopt(wire, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on)) {
        perror("compare_wire: connecting");
        return false;
    }
    snprintf(version, cap, "one TCP connection");
    return true;
}

static const char *prepare(const struct compare_point *p)
{
    const bool sums = p->collective == COMPARE_ALL_REDUCE && compare_sum_of(p->type) != NULL &&
                      p->count * p->elem_bytes <= MOST_EXCHANGED;
    return sums || p->collective == COMPARE_BROADCAST ? NULL : "is not for a wire";
}

static bool put(const char *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = send(wire, from + done, bytes - done, MSG_NOSIGNAL);
        if (n < 0) {
            return false;
        }
        done += (size_t)n;
    }
    return true;
}

/* Receive by polling, so that no rank must be woken up. */
static bool take(char *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = recv(wire, to + done, bytes - done, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            return false;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool call(const struct compare_point *p)
{
    const size_t bytes = p->count * p->elem_bytes;
    if (p->collective == COMPARE_BROADCAST) {
        return p->rank == p->root ? put(p->send, bytes) : take(p->recv, bytes);
    }
    const void *both[2] = {p->rank == 0 ? p->send : other, p->rank == 0 ? other : p->send};
    if (!put(p->send, bytes) || !take(other, bytes)) {
        return false;
    }
    compare_sum_of(p->type)(p->recv, both, 2, bytes, false);
    return true;
}

static void stop(void)
{
    close(wire);
    free(other);
}

int main(void)
{
    static const struct compare_method wire_method = {
        .start = start, .prepare = prepare, .call = call, .stop = stop};
    return compare_worker(&wire_method);
}
