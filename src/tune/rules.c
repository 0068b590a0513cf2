// SPDX-License-Identifier: Apache-2.0
/* The user's rules: the algorithm for a collective and a range of sizes.
 *
 *   rules  = [entry {";" entry}]      entry = collective ":" choice {"," choice}
 *   choice = [range ":"] algorithm    range = low "-" [high]
 *
 * The parser reads the text once, from left to right. A rule is a demand, so the parser guesses
 * nothing. A word that it does not understand refuses the whole text, and the error names the
 * word's place.
 */
#include "plan/plan.h"
#include "tune.h"

#include <stdlib.h>
#include <string.h>

struct word {
    size_t at, len; /* in the text */
};

struct rule {
    enum kolo_coll coll;
    size_t low, high; /* low <= bytes < high; SIZE_MAX has no end */
    const struct kolo_algo *algo;
    struct word choice;
};

struct kolo_rules {
    struct rule *rule;
    int count;
    char *text;
};

struct parser {
    struct kolo_rules *rules;
    size_t at; /* of the next word */
    int (*algo_count)(void);
    const struct kolo_algo *(*algo_at)(int index);
};

static int builtin_count(void)
{
    return kolo_algos_count;
}

static const struct kolo_algo *builtin_at(int index)
{
    return kolo_algos[index];
}

const char *kolo_algo_word(const struct kolo_algo *algo)
{
    const char *prefix = kolo_coll_name(algo->coll);
    const size_t len = strlen(prefix);
    const char *name = algo->base.name;
    return strncmp(name, prefix, len) == 0 && name[len] == '_' ? name + len + 1 : name;
}

/* ---- words ---- */

/* Take the word up to one of these characters or the end. The parser then stands behind that
 * character. */
static struct word take_word(struct parser *p, const char *ends)
{
    const char *text = p->rules->text;
    const struct word w = {p->at, strcspn(text + p->at, ends)};
    p->at = w.at + w.len + (text[w.at + w.len] != '\0');
    return w;
}

/* The character that ended a word; '\0' at the end of the text. */
static char end_of(const struct parser *p, struct word w)
{
    return p->rules->text[w.at + w.len];
}

static bool is_word(const struct parser *p, struct word w, const char *text)
{
    return strlen(text) == w.len && strncmp(p->rules->text + w.at, text, w.len) == 0;
}

/* "rules "...": "word" at 11: " and the sentence. `allowed` is freed. */
static kolo_status refuse_rule(const struct parser *p, struct word w, const char *why,
                               struct kolo_text *allowed)
{
    const char *text = p->rules->text;
    const kolo_status st =
        kolo_fail(KOLO_ERR_INVALID, "rules \"%s\": \"%.*s\" at %zu %s%s", text, (int)w.len,
                  text + w.at, w.at + 1, why, allowed->chars != NULL ? allowed->chars : "");
    kolo_text_free(allowed);
    return st;
}

/* ---- collectives, algorithms, ranges ---- */

static kolo_status parse_coll(const struct parser *p, struct word w, enum kolo_coll *out)
{
    struct kolo_text allowed = {0};
    if (kolo_coll_find(p->rules->text + w.at, w.len, out)) {
        return KOLO_OK;
    }
    kolo_coll_list(&allowed, ", ");
    return refuse_rule(p, w, "is no collective; there are ", &allowed);
}

static kolo_status parse_algo(const struct parser *p, struct word w, enum kolo_coll coll,
                              const struct kolo_algo **out)
{
    struct kolo_text allowed = {0};
    for (int i = 0; i < p->algo_count(); i++) {
        const struct kolo_algo *algo = p->algo_at(i);
        if (algo->coll != coll) {
            continue;
        }
        if (is_word(p, w, kolo_algo_word(algo))) {
            kolo_text_free(&allowed);
            *out = algo;
            return KOLO_OK;
        }
        kolo_text_add(&allowed, "%s%s", allowed.len > 0 ? ", " : "", kolo_algo_word(algo));
    }
    struct kolo_text why = {0};
    kolo_text_add(&why, "is no algorithm of %s; there are ", kolo_coll_name(coll));
    const kolo_status st = refuse_rule(p, w, why.chars != NULL ? why.chars : "", &allowed);
    kolo_text_free(&why);
    return st;
}

static bool parse_bytes(const struct parser *p, struct word w, size_t *out)
{
    char digits[32];
    if (w.len == 0 || w.len >= sizeof digits) {
        return false;
    }
    memcpy(digits, p->rules->text + w.at, w.len);
    digits[w.len] = '\0';
    return kolo_parse_bytes(digits, out);
}

static kolo_status parse_range(const struct parser *p, struct word w, struct rule *rule)
{
    struct kolo_text none = {0};
    const char *dash = memchr(p->rules->text + w.at, '-', w.len);
    if (dash == NULL) {
        return refuse_rule(p, w, "is no range; \"4k-64k\" or \"64k-\" would be one", &none);
    }
    const size_t before = (size_t)(dash - p->rules->text) - w.at;
    const struct word low = {w.at, before};
    const struct word high = {w.at + before + 1, w.len - before - 1};
    rule->high = SIZE_MAX;
    if (!parse_bytes(p, low, &rule->low)) {
        return refuse_rule(p, low, "is no number of bytes; \"512\", \"4k\" or \"1M\" would be one",
                           &none);
    }
    if (high.len > 0 && !parse_bytes(p, high, &rule->high)) {
        return refuse_rule(p, high, "is no number of bytes; \"512\", \"4k\", \"1M\" or nothing is",
                           &none);
    }
    if (rule->low >= rule->high) {
        return refuse_rule(p, w, "is empty; the end of a range is not part of it", &none);
    }
    return KOLO_OK;
}

static kolo_status refuse_overlap(const struct parser *p, const struct rule *rule)
{
    for (int i = 0; i < p->rules->count; i++) {
        const struct rule *other = &p->rules->rule[i];
        if (other->coll != rule->coll || rule->low >= other->high || other->low >= rule->high) {
            continue;
        }
        struct kolo_text with = {0};
        kolo_text_add(&with, "\"%.*s\" at %zu; a size may have one rule", (int)other->choice.len,
                      p->rules->text + other->choice.at, other->choice.at + 1);
        return refuse_rule(p, rule->choice, "overlaps ", &with);
    }
    return KOLO_OK;
}

/* ---- the grammar ---- */

static kolo_status parse_choice(struct parser *p, enum kolo_coll coll, char *end)
{
    struct rule rule = {.coll = coll, .low = 0, .high = SIZE_MAX};
    struct word w = take_word(p, ":,;");
    rule.choice = w;
    if (end_of(p, w) == ':') {
        KOLO_TRY(parse_range(p, w, &rule));
        w = take_word(p, ":,;");
        rule.choice.len = w.at + w.len - rule.choice.at;
    }
    KOLO_TRY(parse_algo(p, w, coll, &rule.algo));
    *end = end_of(p, w);
    if (*end == ':') {
        struct kolo_text none = {0};
        return refuse_rule(p, w, "must be followed by ',', ';' or the end", &none);
    }
    KOLO_TRY(refuse_overlap(p, &rule));
    p->rules->rule[p->rules->count++] = rule;
    return KOLO_OK;
}

static kolo_status parse_entry(struct parser *p, char *end)
{
    const struct word w = take_word(p, ":,;");
    enum kolo_coll coll = KOLO_COLLS;
    KOLO_TRY(parse_coll(p, w, &coll));
    *end = end_of(p, w);
    if (*end != ':') {
        struct kolo_text none = {0};
        return refuse_rule(p, w, "must be followed by ':' and an algorithm", &none);
    }
    do {
        KOLO_TRY(parse_choice(p, coll, end));
    } while (*end == ',');
    return KOLO_OK;
}

static kolo_status parse_all(struct parser *p)
{
    char end = p->rules->text[0] != '\0' ? ';' : '\0';
    while (end == ';') {
        KOLO_TRY(parse_entry(p, &end));
    }
    return KOLO_OK;
}

/* An upper bound: a text has at most one rule more than it has separators. */
static size_t most_rules(const char *text)
{
    size_t most = 1;
    for (; *text != '\0'; text++) {
        most += *text == ',' || *text == ';';
    }
    return most;
}

kolo_status kolo_rules_parse_among(const char *text, int (*algo_count)(void),
                                   const struct kolo_algo *(*algo_at)(int index),
                                   struct kolo_rules **out)
{
    struct kolo_rules *rules = calloc(1, sizeof *rules);
    if (rules != NULL) {
        rules->text = strdup(text);
        rules->rule = calloc(most_rules(text), sizeof *rules->rule);
    }
    if (rules == NULL || rules->text == NULL || rules->rule == NULL) {
        kolo_rules_destroy(rules);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the rules \"%s\"", text);
    }
    struct parser p = {.rules = rules, .algo_count = algo_count, .algo_at = algo_at};
    const kolo_status st = parse_all(&p);
    if (st != KOLO_OK) {
        kolo_rules_destroy(rules);
        return st;
    }
    *out = rules;
    return KOLO_OK;
}

kolo_status kolo_rules_parse(const char *text, struct kolo_rules **out)
{
    return kolo_rules_parse_among(text, builtin_count, builtin_at, out);
}

void kolo_rules_destroy(struct kolo_rules *rules)
{
    if (rules == NULL) {
        return;
    }
    free(rules->rule);
    free(rules->text);
    free(rules);
}

static const struct rule *find_rule(const struct kolo_rules *rules, enum kolo_coll coll,
                                    size_t bytes)
{
    for (int i = 0; rules != NULL && i < rules->count; i++) {
        const struct rule *rule = &rules->rule[i];
        /* A range without an end includes SIZE_MAX itself. */
        const bool below = bytes < rule->high || rule->high == SIZE_MAX;
        if (rule->coll == coll && bytes >= rule->low && below) {
            return rule;
        }
    }
    return NULL;
}

const struct kolo_algo *kolo_rules_find(const struct kolo_rules *rules, enum kolo_coll coll,
                                        size_t bytes)
{
    const struct rule *rule = find_rule(rules, coll, bytes);
    return rule != NULL ? rule->algo : NULL;
}

void kolo_rules_say(const struct kolo_rules *rules, enum kolo_coll coll, size_t bytes,
                    struct kolo_text *out)
{
    const struct rule *rule = find_rule(rules, coll, bytes);
    if (rule != NULL) {
        kolo_text_add(out, "%s:%.*s", kolo_coll_name(coll), (int)rule->choice.len,
                      rules->text + rule->choice.at);
    }
}
