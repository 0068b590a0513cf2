// SPDX-License-Identifier: Apache-2.0
/* The known values of a node, as XML attributes or JSON members. Unknown values are left out.
 * Numbers have enough digits to be read back unchanged. */
#include "topology/formats/members.h"

#include "util/escape.h"

static const struct notation {
    const char *before, *after; /* text before and after a name */
    const char *number_quote;
    void (*escape)(struct kolo_text *out, const char *text);
} notations[] = {
    [KOLO_AS_XML] = {" ", "=", "\"", kolo_text_xml},
    [KOLO_AS_JSON] = {", \"", "\": ", "", kolo_text_json},
};

void kolo_member_text(struct kolo_text *out, enum kolo_notation as, const char *name,
                      const char *value)
{
    if (value != NULL) {
        kolo_text_add(out, "%s%s%s\"", notations[as].before, name, notations[as].after);
        notations[as].escape(out, value);
        kolo_text_add(out, "\"");
    }
}

static void add_int(struct kolo_text *out, enum kolo_notation as, const char *name, long value,
                    long unknown)
{
    const struct notation *to = &notations[as];
    if (value != unknown) {
        kolo_text_add(out, "%s%s%s%s%ld%s", to->before, name, to->after, to->number_quote, value,
                      to->number_quote);
    }
}

void kolo_node_members(struct kolo_text *out, enum kolo_notation as, const struct kolo_node *n)
{
    const struct notation *to = &notations[as];
    char bus[24];
    kolo_bus_print(n->bus, bus);
    add_int(out, as, "parent", n->parent, -1);
    kolo_member_text(out, as, "bus", n->bus != KOLO_BUS_NONE ? bus : NULL);
    add_int(out, as, "number", n->number, -1);
    add_int(out, as, "arch", n->arch, 0);
    add_int(out, as, "gdr", n->gdr, -1);
    add_int(out, as, "rdma", n->rdma, -1);
    add_int(out, as, "port", n->port, 0);
    add_int(out, as, "ports", n->ports, 0);
    add_int(out, as, "count", n->count, 0);
    add_int(out, as, "class", (long)n->class_id, 0);
    add_int(out, as, "vendor", (long)n->vendor, 0);
    add_int(out, as, "device", (long)n->device, 0);
    if (n->guid != 0) { /* too long for a JSON number */
        kolo_text_add(out, "%sguid%s\"0x%llx\"", to->before, to->after,
                      (unsigned long long)n->guid);
    }
    if (n->gbs > 0) {
        kolo_text_add(out, "%sgbs%s%s%.17g%s", to->before, to->after, to->number_quote, n->gbs,
                      to->number_quote);
    }
    kolo_member_text(out, as, "name", n->name);
    kolo_member_text(out, as, "cpus", n->cpus);
    kolo_member_text(out, as, "type", n->arch_text);
}
