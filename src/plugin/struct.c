// SPDX-License-Identifier: Apache-2.0
/* Checks of the struct that a plug-in exports: its ABI, size, name and slots.
 *
 * The struct may be older than ours, and so shorter. Its size field may be false. So no byte beyond
 * `bytes`, the size in the file's symbol table, is read. */
#include "plan/plan.h"
#include "plugin/load.h"

#include <ctype.h>
#include <string.h>

static const char *base_name(const char *path)
{
    return strrchr(path, '/') + 1;
}

/* The file must be named "libkolo_<kind>_<name>.so", with the <name> of the struct. */
static kolo_status check_name(const struct kolo_plugin_found *found, const char *name)
{
    struct kolo_text expected = {0};
    for (const char *c = name; c != NULL && *c != '\0'; c++) {
        if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '_') {
            name = NULL;
            break;
        }
    }
    if (name == NULL || name[0] == '\0') {
        return kolo_fail(KOLO_ERR_INVALID,
                         "plug-in refused: %s: a name has a-z, 0-9 and _, and is not empty",
                         found->path);
    }
    kolo_text_add(&expected, "libkolo_%s_%s.so", found->kind, name);
    const bool equal =
        expected.chars != NULL && strcmp(base_name(found->path), expected.chars) == 0;
    kolo_status status = KOLO_OK;
    if (!equal) {
        status =
            kolo_fail(KOLO_ERR_INVALID, "plug-in refused: %s holds %s \"%s\", so its file is %s",
                      found->path, found->kind, name, expected.chars);
    }
    kolo_text_free(&expected);
    return status;
}

static kolo_status check_base(const struct kolo_plugin_found *found, size_t ours)
{
    const struct kolo_plugin *base = found->symbol;
    if (found->bytes < sizeof *base) {
        return kolo_fail(
            KOLO_ERR_INVALID,
            "plug-in refused: %s: kolo_%s_v1 has %zu bytes, which is no plug-in's struct",
            found->path, found->kind, found->bytes);
    }
    if (base->abi != KOLO_PLUGIN_ABI) {
        return kolo_fail(KOLO_ERR_VERSION,
                         "plug-in refused: %s has plug-in ABI %u, this is %u: it is to be built "
                         "again with this kolo/plugin.h",
                         found->path, base->abi, KOLO_PLUGIN_ABI);
    }
    if (base->size < sizeof *base || base->size > ours) {
        return kolo_fail(KOLO_ERR_VERSION,
                         "plug-in refused: %s: its struct has %u bytes, here it has %zu to %zu",
                         found->path, base->size, sizeof *base, ours);
    }
    if (base->size > found->bytes) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "plug-in refused: %s: its struct says that it has %u bytes, and has %zu",
                         found->path, base->size, found->bytes);
    }
    return check_name(found, base->name);
}

static kolo_status slot_is_missing(const struct kolo_plugin_found *found, const char *slot)
{
    return kolo_fail(KOLO_ERR_INVALID, "plug-in refused: %s: %s is missing", found->path, slot);
}

/* A required slot that a transport with these abilities lacks, or NULL. */
static const char *missing_slot(const struct kolo_transport *t)
{
    const bool map = (t->caps & KOLO_CAP_MAP) != 0;
    const bool message = (t->caps & KOLO_CAP_MESSAGE) != 0;
    const struct {
        bool lacking;
        const char *name;
    } slots[] = {
        {t->open == NULL, "open"},
        {t->close == NULL, "close"},
        {t->probe == NULL, "probe"},
        {t->address == NULL, "address"},
        {t->connect == NULL, "connect"},
        {t->disconnect == NULL, "disconnect"},
        {map && t->map == NULL, "map (it has KOLO_CAP_MAP)"},
        {map && t->unmap == NULL, "unmap (it has KOLO_CAP_MAP)"},
        {map && t->attach == NULL, "attach (it has KOLO_CAP_MAP)"},
        {map && t->wake == NULL, "wake (it has KOLO_CAP_MAP)"},
        {message && t->send == NULL, "send (it has KOLO_CAP_MESSAGE)"},
        {message && t->recv == NULL, "recv (it has KOLO_CAP_MESSAGE)"},
        {message && t->progress == NULL, "progress (it has KOLO_CAP_MESSAGE)"},
        {message && t->abort == NULL, "abort (it has KOLO_CAP_MESSAGE)"},
        {!map && !message, "KOLO_CAP_MAP or KOLO_CAP_MESSAGE"},
    };
    for (size_t i = 0; i < KOLO_LENGTH(slots); i++) {
        if (slots[i].lacking) {
            return slots[i].name;
        }
    }
    return NULL;
}

kolo_status kolo_plugin_read_algo(const struct kolo_plugin_found *found, struct kolo_algo *out)
{
    struct kolo_algo algo;
    KOLO_TRY(check_base(found, sizeof algo));
    kolo_algo_overlay(found->symbol, &algo);
    if (algo.build == NULL) {
        return slot_is_missing(found, "build");
    }
    if (algo.source == NULL || algo.source[0] == '\0') {
        return slot_is_missing(found, "source");
    }
    if ((unsigned)algo.coll >= KOLO_COLLS) {
        return kolo_fail(KOLO_ERR_INVALID, "plug-in refused: %s: there is no collective %u",
                         found->path, (unsigned)algo.coll);
    }
    const char *prefix = kolo_coll_name(algo.coll);
    const size_t len = strlen(prefix);
    if (strncmp(algo.base.name, prefix, len) != 0 || algo.base.name[len] != '_') {
        return kolo_fail(KOLO_ERR_INVALID, "plug-in refused: %s: the name begins with %s_",
                         found->path, prefix);
    }
    *out = algo;
    return KOLO_OK;
}

/* Copy the struct without defaults, so that a missing required slot is found. */
static void copy_given(const struct kolo_plugin *given, void *out, size_t ours)
{
    memset(out, 0, ours);
    memcpy(out, given, given->size);
}

kolo_status kolo_plugin_read_transport(const struct kolo_plugin_found *found,
                                       struct kolo_transport *out)
{
    struct kolo_transport given;
    KOLO_TRY(check_base(found, sizeof given));
    copy_given(found->symbol, &given, sizeof given);
    const char *slot = missing_slot(&given);
    if (slot != NULL) {
        return slot_is_missing(found, slot);
    }
    kolo_transport_overlay(&given, out);
    return KOLO_OK;
}

kolo_status kolo_plugin_read_tuner(const struct kolo_plugin_found *found, struct kolo_tuner *out)
{
    struct kolo_tuner given;
    KOLO_TRY(check_base(found, sizeof given));
    copy_given(found->symbol, &given, sizeof given);
    if (given.open == NULL || given.close == NULL || given.choose == NULL) {
        return slot_is_missing(found, given.open == NULL    ? "open"
                                      : given.close == NULL ? "close"
                                                            : "choose");
    }
    given.base.size = sizeof given;
    *out = given;
    return KOLO_OK;
}
