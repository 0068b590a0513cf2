// SPDX-License-Identifier: Apache-2.0
/* The meeting point of ranks on several hosts. It is an address that all ranks know, or an id that
 * rank 0 makes and that the launcher or a file passes on. */
#include "boot/launch.h"
#include "boot/pmi.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_NAP_US = 200000 };

/* Whether the text may be a name that is entered later: it is no address, and no attempt at one. */
static bool may_be_name(const char *host)
{
    return strchr(host, ':') == NULL && host[strspn(host, "0123456789.")] != '\0';
}

/* Find the host's address. Clusters start ranks before the name of rank 0's host is known: wait for
 * it as long as the ranks may wait for each other. */
static kolo_status find_host(struct kolo_launch *launch, const char *host, uint16_t port)
{
    struct kolo_inet *out = &launch->meet.place;
    const double until_us = kolo_now_us() + launch->timeout_ms * 1e3;
    kolo_status st = kolo_inet_find(host, port, out);
    for (bool said = false; st == KOLO_ERR_INVALID && may_be_name(host) && kolo_now_us() < until_us;
         said = true) {
        if (!said) {
            KOLO_LOG(WARN, INIT, "host \"%s\" has no address yet: waiting for it, up to %d ms",
                     host, launch->timeout_ms);
        }
        (void)usleep(NAME_NAP_US);
        st = kolo_inet_find(host, port, out);
    }
    return st;
}

/* Parse "host:port" or "[::1]:port". */
static kolo_status read_root(struct kolo_launch *launch)
{
    const char *text = kolo_env("KOLO_ROOT");
    const char *colon = strrchr(text, ':');
    long port = 0;
    if (colon == NULL || colon == text || !kolo_parse_int(colon + 1, 1, 65535, &port)) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "KOLO_ROOT is \"%s\"; it is rank 0's host and a port, such as "
                         "node1:29600 or [fe80::1]:29600",
                         text);
    }
    const bool bracketed = text[0] == '[' && colon[-1] == ']';
    char *host = strndup(text + bracketed, (size_t)(colon - text) - 2 * bracketed);
    if (host == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for KOLO_ROOT");
    }
    const kolo_status st = find_host(launch, host, (uint16_t)port);
    free(host);
    return st;
}

static kolo_status read_master(struct kolo_launch *launch)
{
    long port = 0;
    const char *text = kolo_env("KOLO_PORT");
    if (!kolo_parse_int(text, 1, 65535, &port)) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "KOLO_PORT is \"%s\"; it is a free port of MASTER_ADDR, 1 to 65535, other "
                         "than MASTER_PORT",
                         text);
    }
    return find_host(launch, kolo_env("MASTER_ADDR"), (uint16_t)port);
}

static kolo_status share_id(struct kolo_launch *launch)
{
    struct kolo_id id = {0};
    if (launch->rank == 0) {
        KOLO_TRY(kolo_id_create(&id));
        launch->served = true;
    }
    KOLO_TRY(launch->id_file != NULL ? kolo_id_file_share(launch->id_file, launch->rank,
                                                          launch->number, launch->timeout_ms, &id)
                                     : kolo_pmi_share(launch->rank, launch->number, &id));
    const kolo_status st = kolo_meet_from_id(&id, &launch->meet);
    explicit_bzero(&id, sizeof id);
    return st;
}

kolo_status kolo_launch_hosts(struct kolo_launch *launch)
{
    if (kolo_env("KOLO_ROOT") != NULL) {
        return read_root(launch);
    }
    launch->id_file = kolo_env("KOLO_ID_FILE");
    if (launch->id_file == NULL && kolo_env("KOLO_PORT") != NULL &&
        kolo_env("MASTER_ADDR") != NULL) {
        return read_master(launch);
    }
    if (launch->id_file != NULL || kolo_pmi_is_there()) {
        return share_id(launch);
    }
    return kolo_fail(KOLO_ERR_INVALID,
                     "the %d ranks that %s started are on several hosts: set KOLO_ROOT=host:port "
                     "(under torchrun KOLO_PORT=port) and KOLO_SECRET, or KOLO_ID_FILE=path on a "
                     "file system that they share",
                     launch->nranks, launch->launcher);
}

void kolo_launch_done(const struct kolo_launch *launch)
{
    if (launch->id_file != NULL && launch->rank == 0) {
        kolo_id_file_remove(launch->id_file, launch->number);
    }
}
