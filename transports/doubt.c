// SPDX-License-Identifier: Apache-2.0
/* The knock: a new connection to the listener of the peer, and how long it stands. */
#include "transports/doubt.h"

#include "util/util.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

/* A process that is killed closes its listener after its connections, and may have to wait for a
 * processor between. */
enum { STAYS_US = 1200 * 1000, LIVED_US = 800 * 1000 };
enum { ANSWER_US = 1000 * 1000, NEWS_US = 200 * 1000, FIRST_MS = 2 };
enum { AGAIN_US = 5 * 1000, KNOCKS_US = 2000 * 1000 };

static void knock(struct kolo_doubt *d)
{
    const int fd = kolo_net_connect(d->place, d->from);
    d->error = fd < 0 ? errno : 0;
    d->own = kolo_own_fd(fd);
    d->refused = d->error == ECONNREFUSED;
    d->answered_us = d->alive_us = d->again_us = 0;
    d->knocked_us = kolo_now_us();
    struct pollfd soon = {fd, POLLOUT, 0};
    (void)poll(&soon, fd >= 0, FIRST_MS); /* near hosts refuse at once */
}

void kolo_doubt_begin(struct kolo_doubt *d, const struct kolo_inet *place,
                      const struct kolo_interface *from, bool met)
{
    *d = (struct kolo_doubt){.place = place, .from = from, .met = met, .since_us = kolo_now_us()};
    knock(d);
}

/* The new connection is made, or refused. */
static int hear_answer(struct kolo_doubt *d)
{
    const int error = kolo_net_connected(d->own.fd, 0);
    if (error == EINPROGRESS) {
        return kolo_now_us() - d->knocked_us > ANSWER_US ? ETIMEDOUT : 0;
    }
    d->answered_us = kolo_now_us();
    d->refused = error == ECONNREFUSED || error == ECONNRESET;
    /* Where the listener closes while the handshake ends, Linux leaves this side a connection that
     * has no other end. The kernel answers a byte with a reset there. A listener that lives takes
     * the byte for the first one of a greeting that never ends. */
    if (error == 0) {
        (void)kolo_net_say(d->own.fd, "", 1);
    }
    return d->refused ? 0 : error;
}

/* A process that is ending may still have accepted the connection: then the next knock is refused. */
static int see_it_stay(struct kolo_doubt *d)
{
    char byte = 0;
    const ssize_t n = recv(d->own.fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    const bool ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    d->alive_us = ended ? d->alive_us : kolo_now_us();
    /* A peer that was in doubt, too, and has settled it, may have left meanwhile. */
    const bool lived = d->alive_us - d->answered_us > (ended ? LIVED_US : STAYS_US);
    d->again_us = ended && !lived ? kolo_now_us() + AGAIN_US : 0;
    return lived ? ENOLINK : 0;
}

/* Nobody says that the peer has ended, and no connection stands. */
static int knock_again(struct kolo_doubt *d)
{
    const double now = kolo_now_us();
    if (now > d->since_us + KNOCKS_US) {
        return ETIMEDOUT;
    }
    if (now > d->again_us) {
        kolo_own_fd_close(&d->own);
        knock(d);
    }
    return 0;
}

int kolo_doubt_step(struct kolo_doubt *d)
{
    int error = d->again_us > 0 ? knock_again(d) : 0;
    if (error != 0 || d->again_us > 0) {
        return error;
    }
    if (d->own.fd < 0 && !d->refused) { /* that of this process, or of the way */
        error = d->error == EMFILE || d->error == ENFILE ? d->error : EHOSTUNREACH;
    } else if (!d->refused) {
        error = d->answered_us == 0 ? hear_answer(d) : see_it_stay(d);
    }
    if (error != 0 || !d->refused) {
        return error;
    }
    /* A rank that this one never met may have ended the communicator for a reason that is on its
     * way here, by others. */
    const bool news_may_come = !d->met && kolo_now_us() - d->since_us < NEWS_US;
    return d->met ? ECONNRESET : news_may_come ? 0 : ECONNREFUSED;
}

void kolo_doubt_end(struct kolo_doubt *d)
{
    if (kolo_doubt_is_open(d)) {
        kolo_own_fd_close(&d->own);
    }
    *d = (struct kolo_doubt){.own = KOLO_NO_FD};
}
