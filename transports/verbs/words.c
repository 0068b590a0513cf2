// SPDX-License-Identifier: Apache-2.0
/* The words of the control connections: the meaning of the peer's words, and the last words of this
 * side. */
#include "transports/verbs/verbs.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINGER_MS = 2000, NAP_US = 20 };

/* ---- words in ---- */

/* False: the word is invalid. */
static bool hear_word(struct kolo_link *link, const struct kolo_verbs_word *word)
{
    if (word->magic != KOLO_VERBS_MAGIC || link->base.bye) {
        return false;
    }
    switch (word->kind) {
    case KOLO_VERBS_BYE:
        link->base.bye = true;
        kolo_carrier_activate(&link->base);
        return true;
    case KOLO_VERBS_ABORT:
        kolo_carrier_aborted(&link->base, word->reason);
        return true;
    case KOLO_VERBS_TEXT:
        kolo_carrier_hear_reason(&link->base, (size_t)word->epoch * KOLO_VERBS_TEXT_PART,
                                 (const char *)word + offsetof(struct kolo_verbs_word, value),
                                 KOLO_VERBS_TEXT_PART);
        return true;
    case KOLO_VERBS_NOTIFY:
        kolo_carrier_hear_word(&link->base, word->value, &word->call);
        return true;
    default:
        return kolo_verbs_lane_hear(link, word);
    }
}

void kolo_verbs_words_step(struct kolo_link *link)
{
    struct kolo_verbs_word word;
    while (link->base.failed == KOLO_OK && kolo_verbs_control_read(link, &word)) {
        if (!hear_word(link, &word)) {
            kolo_verbs_fail(link, "sent an invalid control word", 0, false);
        }
    }
    kolo_verbs_control_step(link);
}

/* ---- the last words ---- */

/* Wait until all posted work has completed, then send BYE. */
static void finish_sending(struct kolo_link *link)
{
    const double deadline = kolo_now_us() + LINGER_MS * 1e3;
    bool quiet = false;
    while (link->nlive > 0 && !quiet && !link->base.bye && link->base.failed == KOLO_OK &&
           kolo_now_us() < deadline) {
        quiet = true;
        for (int i = 0; i < link->nlanes; i++) {
            quiet = kolo_verbs_lane_is_quiet(&link->lane[i]) && quiet;
        }
        if (!quiet && kolo_verbs_lanes_poll(link->ep) == 0) {
            kolo_verbs_words_step(link);
            (void)usleep(NAP_US);
        }
    }
    for (int i = 0; i < link->nlanes; i++) {
        const struct kolo_verbs_word sent = {.kind = KOLO_VERBS_SENT,
                                             .lane = (uint8_t)i,
                                             .epoch = link->lane[i].epoch,
                                             .value = link->lane[i].sent};
        kolo_verbs_control_say(link, &sent);
    }
    kolo_verbs_control_say(link, &(struct kolo_verbs_word){.kind = KOLO_VERBS_BYE});
    while (!kolo_verbs_control_flush(link) && link->out.fd >= 0 && kolo_now_us() < deadline) {
        (void)usleep(NAP_US);
    }
}

static void say_text(struct kolo_link *link, const char text[KOLO_REASON_TEXT], size_t len)
{
    for (uint32_t i = 0; i * KOLO_VERBS_TEXT_PART < len; i++) {
        struct kolo_verbs_word word = {.kind = KOLO_VERBS_TEXT, .epoch = i};
        memcpy((char *)&word + offsetof(struct kolo_verbs_word, value),
               text + (size_t)i * KOLO_VERBS_TEXT_PART, KOLO_VERBS_TEXT_PART);
        kolo_verbs_control_say(link, &word);
    }
}

static void say_abort(struct kolo_link *link, kolo_status why)
{
    const struct kolo_verbs_word word = {.kind = KOLO_VERBS_ABORT,
                                         .reason = kolo_carriers_reason(&link->ep->all, why)};
    kolo_verbs_control_say(link, &word);
}

void kolo_verbs_complain(struct kolo_link *link)
{
    char text[KOLO_REASON_TEXT] = {0};
    link->complains = false;
    if (link->out.up && link->out.fd >= 0 && kolo_verbs_is_ours(link->ep)) {
        (void)snprintf(text, sizeof text, "%s", link->base.text);
        say_text(link, text, strlen(text));
        say_abort(link, KOLO_ERR_LINK);
    }
}

/* Either the communicator failed, and the peer must know. Or this side wants its requests back, and
 * leaves. */
void kolo_verbs_give_up(struct kolo_link *link, kolo_status why)
{
    if (!kolo_verbs_is_ours(link->ep)) {
        kolo_verbs_control_end(link);
    }
    if (!link->base.self && kolo_carriers_have_failed(&link->ep->all)) {
        char text[KOLO_REASON_TEXT];
        say_text(link, text, kolo_carriers_reason_text(&link->ep->all, text));
        say_abort(link, why);
    } else if (!link->base.self && link->out.up && link->out.fd >= 0) {
        finish_sending(link);
    }
    kolo_carrier_give_up(&link->base, why);
}
