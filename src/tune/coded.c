// SPDX-License-Identifier: Apache-2.0
/* Whether a call runs on the units of a codec, and by which plan.
 *
 * A plan is admissible if no element is encoded more often than kolo_codec_encodings() says. That is
 * proved for each plan, and the bound that is told before the call follows from it. The cheapest
 * admissible plan competes with the plan that runs uncompressed.
 */
#include "chooser.h"
#include "plan/plan.h"
#include "sums.h"

/* Encoding and decoding a byte of float32, and adding its code, cost as much as so many additions of
 * float32. Measured with AVX-512 and AVX2, in the cache and in memory: 2.5 to 4. */
static const double CODEC_WORK = 4;

/* The call cache keeps no compressed calls: each is chosen anew, and allocates memory. */
static const double CALL_US = 5;

int kolo_codec_encodings(enum kolo_coll coll)
{
    return kolo_coll_reduces(coll) ? 2 : 1;
}

/* The price of `algo` at this size: between the prices at the smallest sizes of its class and of the
 * next one. */
static kolo_status price_at(struct kolo_asked call, const struct kolo_algo *algo, size_t bytes,
                            double *out)
{
    double us[2] = {0};
    const int number = kolo_class_of(bytes);
    for (int i = 0; i < 2; i++) {
        struct kolo_class *class = NULL;
        KOLO_TRY(
            kolo_class_prepare(call.chooser, call.coll, (size_t)1 << (number + i), false, &class));
        call.class = class;
        const struct kolo_candidate *candidate = kolo_candidate_of(&call, algo);
        us[i] = candidate != NULL ? candidate->us : us[0];
    }
    *out = us[0] + (us[1] - us[0]) * ((double)bytes / (double)((size_t)1 << number) - 1);
    return KOLO_OK;
}

/* The time for all that an uncompressed call does not do, where ranks share cores. */
static double codec_us(const struct kolo_chooser *c, const struct kolo_coded_call *about)
{
    const double cores = kolo_model_cores(&c->model);
    const double turns = cores < c->options.nranks ? c->options.nranks / cores : 1;
    const double us =
        CODEC_WORK * c->options.costs.reduce_us_per_byte * (double)about->worked_bytes;
    return (us + CALL_US) * turns;
}

static kolo_status is_admissible(const struct kolo_asked *call, const struct kolo_algo *algo,
                                 const struct kolo_algo *ruled, bool *out)
{
    unsigned sums = 0;
    KOLO_TRY(kolo_sums_of(call->chooser, algo, call->root, &sums));
    const int encodings = (int)(sums >> KOLO_SUMS_ENCODINGS);
    /* Plans of many ranks are judged by those of few: there one pass can be enough for a sum. */
    const bool one_pass =
        !kolo_coll_reduces(call->coll) || call->chooser->options.nranks <= KOLO_PASS_SOURCES;
    *out = encodings > 0 && encodings <= kolo_codec_encodings(call->coll) && one_pass &&
           (ruled == NULL || ruled == algo);
    return KOLO_OK;
}

/* The cheapest admissible candidate. NULL: there is none. */
static kolo_status find_admissible(const struct kolo_asked *call, const struct kolo_algo *ruled,
                                   const struct kolo_candidate **out)
{
    bool fits = false;
    int at = 0;
    do {
        KOLO_TRY(kolo_next_candidate(call, &at, out));
        if (*out != NULL) {
            KOLO_TRY(is_admissible(call, (*out)->algo, ruled, &fits));
        }
    } while (*out != NULL && !fits);
    return KOLO_OK;
}

kolo_status kolo_choose_coded(struct kolo_chooser *c, const struct kolo_coded_call *about,
                              const struct kolo_pick *plain, struct kolo_coded_pick *out)
{
    const struct kolo_candidate *candidate = NULL;
    struct kolo_class *class = NULL;
    KOLO_TRY(kolo_class_prepare(c, about->coll, about->coded_bytes, false, &class));
    const struct kolo_asked call = {c,    class, about->coll, 0, about->coded_bytes, KOLO_FLOAT32,
                                    false};
    *out = (struct kolo_coded_pick){
        .fresh = (class->coded & 1u << about->codec) == 0,
    };
    class->coded |= 1u << about->codec;
    if (about->rule == KOLO_CODEC_NEVER || c->forced.algo != NULL) {
        return KOLO_OK;
    }
    KOLO_TRY(find_admissible(&call, kolo_rules_find(c->options.rules, about->coll, about->bytes),
                             &candidate));
    if (candidate != NULL) {
        out->algo = candidate->algo;
        out->tile_bytes = kolo_tile_of(&call);
        KOLO_TRY(price_at(call, plain->algo, about->bytes, &out->plain_us));
        KOLO_TRY(price_at(call, out->algo, about->coded_bytes, &out->coded_us));
        out->coded_us += codec_us(c, about);
        out->pays = about->rule == KOLO_CODEC_ALWAYS || out->coded_us < out->plain_us;
    }
    return KOLO_OK;
}

void kolo_coded_line(const struct kolo_coded_call *about, const struct kolo_coded_pick *pick,
                     struct kolo_text *out)
{
    static const char *const by[] = {[KOLO_CODEC_BY_PRICE] = "price",
                                     [KOLO_CODEC_ALWAYS] = "KOLO_CODEC=always",
                                     [KOLO_CODEC_NEVER] = "KOLO_CODEC=never"};
    kolo_text_add(out, "%s: %zu Bytes, codec %s", kolo_coll_title(about->coll), about->bytes,
                  kolo_codec_name(about->codec));
    if (pick->algo == NULL) {
        kolo_text_add(out, " -> uncompressed (%s)",
                      about->rule == KOLO_CODEC_NEVER ? by[about->rule] : "no admissible plan");
        return;
    }
    kolo_text_add(out, " -> %s (%s): %s in %s %.*g us, uncompressed %.*g us",
                  pick->pays ? "compressed" : "uncompressed", by[about->rule],
                  kolo_codec_name(about->codec), kolo_algo_word(pick->algo),
                  kolo_digits(pick->coded_us, 3), pick->coded_us, kolo_digits(pick->plain_us, 3),
                  pick->plain_us);
}
