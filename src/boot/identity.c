// SPDX-License-Identifier: Apache-2.0
/* The identity of this process and its host, and ids: the 128 bytes that ranks join with.
 *
 * A host is a kernel (its boot id), one network namespace and one user namespace. Within a host,
 * processes reach each other's abstract sockets and can compare SO_PEERCRED. Host names prove
 * nothing, because containers share them. */
#include "boot/wire.h"

#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID_MAGIC UINT64_C(0x32646f6c6f6b69) /* "ikolod2" */

/* The content of a struct kolo_id: name, address and secret of a meeting point. */
struct id {
    uint64_t magic;
    uint32_t version; /* KOLO_VERSION of the creator, for information: the hub compares versions */
    uint32_t unused;  /* 0 */
    uint64_t host;    /* the host that made it */
    char name[52];
    struct kolo_inet place; /* family 0: ranks can join on `host` only */
    unsigned char secret[32];
};
static_assert(sizeof(struct id) == sizeof(struct kolo_id), "an id is 128 bytes");

/* Listen for the ranks of an id. INPROGRESS: this process serves the id already. */
static kolo_status serve_id(struct kolo_meet *meet, int listener[2], bool net)
{
    struct kolo_interface at = {0};
    const kolo_status st = kolo_boot_listen(meet, &listener[0]);
    if (st != KOLO_OK || !net) {
        return st;
    }
    KOLO_TRY(kolo_net_choose(false, NULL, &at));
    KOLO_TRY(kolo_net_listen(&at, &listener[1]));
    meet->place = at.place;
    return KOLO_OK;
}

kolo_status kolo_boot_serve(struct kolo_meet *meet, bool net)
{
    int listener[2] = {-1, -1};
    const kolo_status st = serve_id(meet, listener, net);
    if (st == KOLO_INPROGRESS) {
        return kolo_fail(KOLO_ERR_INVALID, "meeting point \"%s\" is served already", meet->name);
    }
    if (st < 0) {
        if (listener[0] >= 0) {
            close(listener[0]);
        }
        return st;
    }
    return kolo_boot_hub_start(meet, listener, 0, -1);
}

/* If the process cannot listen on an interface to other hosts, the id is for this host only. */
kolo_status kolo_id_create(struct kolo_id *out)
{
    KOLO_UNCANCELLED;
    struct id id = {.magic = ID_MAGIC, .version = KOLO_VERSION};
    struct kolo_meet meet = {0};
    uint64_t random[2];
    if (out == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "kolo_id_create: out is NULL");
    }
    KOLO_TRY(kolo_random(random, sizeof random));
    KOLO_TRY(kolo_random(meet.secret, sizeof meet.secret));
    (void)snprintf(meet.name, sizeof meet.name, "id-%016llx%016llx", (unsigned long long)random[0],
                   (unsigned long long)random[1]);
    const kolo_status st = kolo_boot_serve(&meet, true);
    if (st < 0 && (st == KOLO_ERR_INVALID || kolo_boot_serve(&meet, false) < 0)) {
        return st;
    }
    id.host = kolo_host_id();
    memcpy(id.name, meet.name, sizeof id.name);
    memcpy(id.secret, meet.secret, sizeof id.secret);
    id.place = meet.place;
    memcpy(out->bytes, &id, sizeof id);
    explicit_bzero(&id, sizeof id);
    explicit_bzero(&meet, sizeof meet);
    return KOLO_OK;
}

bool kolo_id_is_from_here(const struct kolo_id *id)
{
    struct id is;
    memcpy(&is, id->bytes, sizeof is);
    return is.host == kolo_host_id();
}

kolo_status kolo_meet_from_id(const struct kolo_id *id, struct kolo_meet *out)
{
    struct id is;
    if (id == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "id is NULL");
    }
    memcpy(&is, id->bytes, sizeof is);
    if (is.magic != ID_MAGIC || is.name[0] == '\0' ||
        strnlen(is.name, sizeof is.name) == sizeof is.name) {
        return kolo_fail(KOLO_ERR_INVALID, "these 128 bytes are no id of kolo_id_create()");
    }
    if (is.host != kolo_host_id() && is.place.family == 0) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "the id was made on another host, or in another network or user "
                         "namespace, which has no interface that leads here");
    }
    *out = (struct kolo_meet){.place = is.place};
    memcpy(out->name, is.name, sizeof is.name);
    memcpy(out->secret, is.secret, sizeof out->secret);
    return KOLO_OK;
}

static bool hash_boot_id(uint64_t *hash)
{
    char text[64];
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    const ssize_t n = read(fd, text, sizeof text);
    close(fd);
    if (n <= 0) {
        return false;
    }
    *hash = kolo_hash(*hash, text, (size_t)n);
    return true;
}

static bool hash_namespace(const char *path, uint64_t *hash)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return false;
    }
    const uint64_t inode = info.st_ino;
    *hash = kolo_hash(*hash, &inode, sizeof inode);
    return true;
}

uint64_t kolo_host_id(void)
{
    uint64_t hash = 0;
    if (hash_boot_id(&hash) && hash_namespace("/proc/self/ns/net", &hash) &&
        hash_namespace("/proc/self/ns/user", &hash)) {
        return hash;
    }
    return kolo_process_id(); /* without /proc no other process counts as on this host */
}

uint64_t kolo_kernel_id(void)
{
    uint64_t hash = 0;
    return hash_boot_id(&hash) ? hash : 0;
}

uint64_t kolo_pid_space(void)
{
    char self[24] = "";
    uint64_t hash = 0;
    const ssize_t len = readlink("/proc/self", self, sizeof self - 1);
    return len > 0 && atoi(self) == (int)getpid() && hash_namespace("/proc/self/ns/pid", &hash)
               ? hash
               : 0;
}

static _Atomic uint64_t process_id; /* 0: not drawn since start or fork */

static void forget_process_id(void)
{
    atomic_store(&process_id, 0);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, forget_process_id);
}

uint64_t kolo_process_id(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint64_t id = atomic_load(&process_id);
    (void)pthread_once(&once, watch_forks);
    while (id == 0) {
        uint64_t fresh = 0;
        if (kolo_random(&fresh, sizeof fresh) != KOLO_OK) {
            fresh = kolo_hash((uint64_t)getpid(), &id, sizeof id);
        }
        if (fresh != 0 && atomic_compare_exchange_strong(&process_id, &id, fresh)) {
            return fresh;
        }
    }
    return id;
}
