// SPDX-License-Identifier: Apache-2.0
// covers: src/plugin/struct.c src/plugin/defaults.c
/* The struct of a plug-in, with whatever sizes, numbers and empty slots. Its bytes lie in memory of
 * exactly their length, so that a read beyond them is seen; its name and source, which can only be
 * believed, are the rest of the input. */
#include "plugin/load.h"
#include "target.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD = 2 }; /* bytes of the input that say which kind, and how long the struct is */

/* Slots may be empty, which the input says, but what is called must not be made up. */
static void check_slots(const void *const *slot, size_t first, size_t count)
{
    for (size_t i = first; i < count; i++) {
        if (slot[i] == NULL) {
            abort(); /* a default is missing */
        }
    }
}

static void read_struct(const struct kolo_plugin_found *found)
{
    struct kolo_algo algo;
    struct kolo_transport transport;
    struct kolo_tuner tuner;
    if (found->kind[0] == 'a' && kolo_plugin_read_algo(found, &algo) == KOLO_OK) {
        if ((unsigned)algo.coll >= KOLO_COLLS || algo.supports == NULL || algo.build == NULL) {
            abort();
        }
    } else if (found->kind[1] == 'r' && kolo_plugin_read_transport(found, &transport) == KOLO_OK) {
        check_slots((const void *const *)(const void *)&transport, 3,
                    sizeof transport / sizeof(void *));
    } else if (found->kind[1] == 'u' && kolo_plugin_read_tuner(found, &tuner) == KOLO_OK) {
        check_slots((const void *const *)(const void *)&tuner, 2, sizeof tuner / sizeof(void *));
    }
}

/* The pointers that are followed, put where the struct has them, if it is so long. */
static void set_pointer(void *bytes, size_t len, size_t at, const char *value)
{
    if (len >= at + sizeof(void *)) {
        memcpy((char *)bytes + at, &value, sizeof value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const kinds[] = {"algo", "transport", "tuner"};
    if (size < HEAD) {
        return 0;
    }
    const size_t len = data[1] < size - HEAD ? data[1] : size - HEAD;
    char *name = strndup((const char *)data + HEAD + len, size - HEAD - len);
    void *bytes = malloc(len > 0 ? len : 1);
    const char *kind = kinds[data[0] % 3];
    struct kolo_text path = {0};
    if (name != NULL && bytes != NULL) {
        memcpy(bytes, data + HEAD, len);
        set_pointer(bytes, len, offsetof(struct kolo_plugin, name), name);
        if (kind[0] == 'a') {
            set_pointer(bytes, len, offsetof(struct kolo_algo, source), name);
        }
        kolo_text_add(&path, "/libkolo_%s_%s.so", kind, name);
        read_struct(&(struct kolo_plugin_found){path.chars, kind, bytes, len});
    }
    kolo_text_free(&path);
    free(bytes);
    free(name);
    return 0;
}
