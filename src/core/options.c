// SPDX-License-Identifier: Apache-2.0
/* Options of a communicator: the caller's, else the environment's, else the defaults. */
#include "core/path.h"
#include "core/setup/join.h"
#include "plugin/catalogue.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- configuration ---- */

static kolo_status choose_int(int given, const char *name, int lo, int hi, int otherwise, int *out)
{
    const char *text = kolo_env(name);
    long value = given != KOLO_UNSET ? given : otherwise;
    if (given == KOLO_UNSET && text != NULL && !kolo_parse_int(text, lo, hi, &value)) {
        return kolo_fail(KOLO_ERR_INVALID, "%s is \"%s\"; it must be a number of %d to %d", name,
                         text, lo, hi);
    }
    *out = (int)value;
    return KOLO_OK;
}

static char *choose_text(const char *given, const char *name, const char *otherwise)
{
    const char *text = given != NULL ? given : kolo_env(name);
    return strdup(text != NULL ? text : otherwise);
}

static kolo_status choose_stores(enum kolo_store *out)
{
    const char *text = kolo_env("KOLO_STORES");
    if (text != NULL && !kolo_store_parse(text, out)) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "KOLO_STORES is \"%s\"; it must be measured, ordinary or past", text);
    }
    return KOLO_OK;
}

static kolo_status choose_codecs(enum kolo_codec_rule *out)
{
    static const char *const words[] = {[KOLO_CODEC_BY_PRICE] = "price",
                                        [KOLO_CODEC_ALWAYS] = "always",
                                        [KOLO_CODEC_NEVER] = "never"};
    int rule = KOLO_CODEC_BY_PRICE;
    KOLO_TRY(kolo_env_word("KOLO_CODEC", words, (int)KOLO_LENGTH(words), &rule));
    *out = (enum kolo_codec_rule)rule;
    return KOLO_OK;
}

/* The kernels are the process's, and read the variable themselves. */
static kolo_status check_isa(void)
{
    static const char *const words[] = {"generic", "avx2", "avx512"};
    int isa = 0;
    return kolo_env_word("KOLO_ISA", words, (int)KOLO_LENGTH(words), &isa);
}

static kolo_status check_config(const struct kolo_comm *c)
{
    if (c->options.deterministic != 0 && c->options.deterministic != 1) {
        return kolo_fail(KOLO_ERR_INVALID, "config.deterministic is %d; it must be 0 or 1",
                         c->options.deterministic);
    }
    if (c->options.timeout_ms <= 0) {
        return kolo_fail(KOLO_ERR_INVALID, "config.timeout_ms is %d; it must be positive",
                         c->options.timeout_ms);
    }
    if (c->options.cuda_ordinal < KOLO_HOST) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "config.device is %d; it must be KOLO_HOST (-1) or a CUDA ordinal",
                         c->options.cuda_ordinal);
    }
    if (c->options.cuda_ordinal != KOLO_HOST) {
        const struct kolo_path_ops *ops = NULL;
        kolo_status st = kolo_path_find(c->options.cuda_ordinal, &ops);
        st = st == KOLO_OK ? ops->check() : st; /* before another rank waits for this one */
        if (st == KOLO_ERR_INVALID) {           /* of a variable, which the text names */
            return st;
        }
        if (st < 0) {
            char why[256];
            (void)snprintf(why, sizeof why, "%s", kolo_error_text());
            return kolo_fail(st, "config.device is %d: %s", c->options.cuda_ordinal, why);
        }
    }
    if (c->options.algo_text == NULL || c->options.transport_text == NULL ||
        c->options.groups_text == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a configuration");
    }
    return KOLO_OK;
}

static kolo_status take_config(const struct kolo_config *given, struct kolo_config *out)
{
    *out = (struct kolo_config)KOLO_CONFIG_INIT;
    if (given != NULL) {
        if (given->size < offsetof(struct kolo_config, deterministic) || given->size > 4096) {
            return kolo_fail(KOLO_ERR_INVALID, "config.size is %u; start from KOLO_CONFIG_INIT",
                             given->size);
        }
        memcpy(out, given, kolo_min(given->size, sizeof *out));
    }
    return KOLO_OK;
}

kolo_status kolo_options_timeout(const struct kolo_config *given, int *out)
{
    struct kolo_config config;
    KOLO_TRY(take_config(given, &config));
    return choose_int(config.timeout_ms, "KOLO_TIMEOUT_MS", 1, INT_MAX, 600000, out);
}

kolo_status kolo_comm_configure(struct kolo_comm *c, const struct kolo_config *given)
{
    struct kolo_config config;
    KOLO_TRY(take_config(given, &config));
    KOLO_TRY(
        choose_int(config.deterministic, "KOLO_DETERMINISTIC", 0, 1, 0, &c->options.deterministic));
    KOLO_TRY(kolo_options_timeout(given, &c->options.timeout_ms));
    KOLO_TRY(choose_stores(&c->options.store_rule));
    KOLO_TRY(choose_codecs(&c->options.codec_rule));
    KOLO_TRY(choose_int(KOLO_UNSET, "KOLO_VERIFY", 0, 1, 0, &c->options.verifies));
    KOLO_TRY(check_isa());
    c->options.cuda_ordinal = config.device == KOLO_UNSET ? KOLO_HOST : config.device;
    c->options.algo_text = choose_text(config.algo, "KOLO_ALGO", "");
    c->options.transport_text = choose_text(config.transport, "KOLO_TRANSPORT", "");
    c->options.groups_text = choose_text(NULL, "KOLO_GROUPS", "");
    c->options.progress = config.progress;
    c->options.progress_arg = config.progress_arg;
    (void)snprintf(c->ranks.name, sizeof c->ranks.name, "%s",
                   config.name != NULL ? config.name : "comm");
    KOLO_TRY(check_config(c));
    if (c->options.algo_text[0] == '\0') {
        return KOLO_OK;
    }
    return kolo_rules_parse_among(c->options.algo_text, kolo_algo_count_all, kolo_algo_at,
                                  &c->selection.rules);
}
