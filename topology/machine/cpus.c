// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/cpus.h"

#include "topology/machine/parts.h"

#include <stdlib.h>
#include <string.h>

bool kolo_mask_parse(const char *text, hwloc_bitmap_t out)
{
    const bool endless = strncmp(text, "0xf...f", 7) == 0;
    text += endless ? 7 + (text[7] == ',') : 0;
    unsigned long words = *text != '\0' || !endless;
    for (const char *c = text; *c != '\0'; c++) {
        words += *c == ',';
    }
    if (words > KOLO_HOST_PUS_MAX / 32 ||
        (endless && hwloc_bitmap_set_range(out, (unsigned)words * 32, -1) != 0)) {
        return false;
    }
    for (; words > 0; words--) {
        const size_t len = strcspn(text, ",");
        char *end = NULL;
        const unsigned long word = len > 0 ? strtoul(text, &end, 16) : 0;
        if (len > 10 || (len > 0 && (end != text + len || word > UINT32_MAX))) {
            return false;
        }
        for (unsigned bit = 0; bit < 32; bit++) {
            if ((word >> bit & 1) != 0 &&
                hwloc_bitmap_set(out, (unsigned)(words - 1) * 32 + bit) != 0) {
                return false;
            }
        }
        text += len + (text[len] == ',');
    }
    return true;
}

char *kolo_list_of_mask(const char *mask)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    char *list = NULL;
    if (set != NULL && kolo_mask_parse(mask, set) && hwloc_bitmap_list_asprintf(&list, set) < 0) {
        list = NULL;
    }
    hwloc_bitmap_free(set);
    return list;
}

/* Parse "0-19,40-59". hwloc's own parser accepts more than lists. */
static bool parse_list(const char *text, hwloc_bitmap_t out)
{
    while (*text != '\0') {
        char *end = NULL;
        const unsigned long first = strtoul(text, &end, 10);
        unsigned long last = first;
        if (end == text || *text < '0' || *text > '9') {
            return false;
        }
        if (*end == '-') {
            text = end + 1;
            last = strtoul(text, &end, 10);
            if (end == text || *text < '0' || *text > '9') {
                return false;
            }
        }
        if (last < first || last >= KOLO_HOST_PUS_MAX || (*end != ',' && *end != '\0') ||
            hwloc_bitmap_set_range(out, (unsigned)first, (int)last) != 0) {
            return false;
        }
        text = *end == ',' ? end + 1 : end;
    }
    return true;
}

bool kolo_mask_add(const char *list, struct kolo_text *out)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    const bool is_list = set != NULL && parse_list(list, set);
    const int last = is_list ? hwloc_bitmap_last(set) : -1;
    for (int word = last / 32; is_list && word >= 0; word--) {
        unsigned bits = 0;
        for (unsigned bit = 0; bit < 32; bit++) {
            bits |= (unsigned)(hwloc_bitmap_isset(set, (unsigned)word * 32 + bit) != 0) << bit;
        }
        kolo_text_add(out, "%08x%s", bits, word > 0 ? "," : "");
    }
    hwloc_bitmap_free(set);
    return is_list;
}
