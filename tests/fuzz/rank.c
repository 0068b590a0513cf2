// SPDX-License-Identifier: Apache-2.0
// covers: src/boot/rank.c
/* A rank at its meeting point: what the process there may send to it. All of it lies in the socket
 * before the rank looks, and then the connection ends, so that nothing is waited for.
 *
 * Input: a byte chooses the act of the rank (join, gather, spread, barrier, give up) and whether
 * both ends encrypt, and a byte tells how many bytes it exchanges. Frames follow, and bytes that are no frame. Of each header the
 * input has the first 16 bytes. Digest and MAC are added here, so that the code behind their check
 * is reached. */
#define kolo_boot_open       fuzzed_open /* the library has them, too */
#define kolo_boot_all_gather fuzzed_all_gather
#define kolo_boot_spread     fuzzed_spread
#define kolo_boot_barrier    fuzzed_barrier
#define kolo_boot_has_ended  fuzzed_has_ended
#define kolo_boot_give_up    fuzzed_give_up
#define kolo_boot_close      fuzzed_close
#define kolo_boot_why        fuzzed_why
#define kolo_boot_may_wait   fuzzed_may_wait
#define kolo_boot_is_over    fuzzed_is_over
#include "boot/rank.c"

#include "target.h"

enum { RANKS = 3 };

static void check_exchange(struct kolo_boot *boot, unsigned what, size_t bytes)
{
    char *mine = calloc(1, bytes + 1), *all = malloc(bytes * RANKS + 1);
    kolo_status st = KOLO_OK;
    if (mine == NULL || all == NULL) {
        abort();
    }
    for (int i = 0; i < 3 && st == KOLO_OK; i++) {
        st = what == 1   ? kolo_boot_all_gather(boot, mine, bytes, all)
             : what == 2 ? kolo_boot_spread(boot, mine, bytes)
                         : kolo_boot_barrier(boot);
    }
    (void)kolo_boot_has_ended(boot);
    free(mine);
    free(all);
}

static void act(struct kolo_boot *boot, unsigned what, size_t bytes)
{
    int32_t host = -1;
    switch (what) {
    case 0:
        (void)answer_hub(boot);
        break;
    case 4:
        (void)!kolo_boot_why(boot);
        kolo_error_set("no reason");
        kolo_boot_give_up(boot, KOLO_ERR_SYSTEM);
        break;
    case 5:
        (void)take_frame(boot, KOLO_BOOT_WELCOME, &host, sizeof host);
        break;
    default:
        check_exchange(boot, what, bytes);
        break;
    }
}

/* The hub turns its key where the rank does. */
static void send_frames(int fd, struct kolo_boot_guard *hub, const uint8_t *data, size_t size)
{
    struct kolo_boot_header header = {0};
    const size_t bare = offsetof(struct kolo_boot_header, sum);
    size_t at = 0;
    unsigned char *body = malloc(size);
    if (body == NULL) {
        abort();
    }
    while (size - at >= bare) {
        memcpy(&header, data + at, bare);
        if (header.len > size - at - bare) {
            break;
        }
        (void)kolo_boot_mask(hub, (enum kolo_boot_type)header.type, data + at + bare, header.len,
                             body);
        (void)kolo_boot_sum(body, header.len, header.sum);
        kolo_boot_seal(hub, &header);
        (void)!write(fd, &header, sizeof header);
        (void)!write(fd, body, header.len);
        if (header.type == KOLO_BOOT_CHALLENGE) {
            (void)kolo_boot_guard_turn(hub, data + at + bare, header.len);
        }
        at += bare + header.len;
    }
    (void)!write(fd, data + at, size - at);
    free(body);
}

/* A rank that joins has said HELLO before anything comes. */
static void say_hello(struct kolo_boot *boot, int fd, struct kolo_boot_guard *hub)
{
    struct {
        struct kolo_boot_header header;
        struct kolo_boot_hello hello;
    } said;
    boot->joined = false;
    if (greet_hub(boot) == KOLO_OK && read(fd, &said, sizeof said) == (ssize_t)sizeof said) {
        (void)kolo_boot_guard_turn(hub, &said.hello, sizeof said.hello);
    }
    boot->guard.masks = hub->masks; /* as greet_hub() found it for a socket between hosts */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd[2];
    struct kolo_boot *boot = calloc(1, sizeof *boot);
    if (size < 2 || size > 60000 || boot == NULL) {
        free(boot);
        return 0;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) != 0) {
        abort();
    }
    *boot = (struct kolo_boot){.meet = {.name = "fuzz"},
                               .fd = fd[0],
                               .shared = -1,
                               .rank = data[0] >> 4 & 1,
                               .nranks = RANKS,
                               .timeout_ms = 1000,
                               .host_rank = -1,
                               .hub_is_here = (data[0] & 128) != 0,
                               .joined = true,
                               .deadline_us = kolo_now_us() + 1e6};
    struct kolo_boot_guard hub;
    (void)kolo_boot_guard_begin(&hub, &boot->meet, true);
    (void)kolo_boot_guard_begin(&boot->guard, &boot->meet, false);
    hub.masks = boot->guard.masks = (data[0] & 64) != 0;
    if (data[0] % 6 == 0) {
        say_hello(boot, fd[1], &hub);
    }
    send_frames(fd[1], &hub, data + 2, size - 2);
    (void)shutdown(fd[1], SHUT_WR);
    act(boot, data[0] % 6, data[1]);
    kolo_boot_close(boot);
    close(fd[1]);
    return 0;
}
