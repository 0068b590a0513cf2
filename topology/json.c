// SPDX-License-Identifier: Apache-2.0
/* A machine as JSON, and text as JSON's strings. */
#include "graph.h"

#include <string.h>

void kolo_text_json(struct kolo_text *out, const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        const unsigned char c = (unsigned char)*at;
        if (c == '"' || c == '\\') {
            kolo_text_add(out, "\\%c", c);
        } else if (c < ' ' || c >= 0x7f) {
            kolo_text_add(out, "\\u%04x", c); /* bytes that are no ASCII: as Latin-1 */
        } else {
            kolo_text_add(out, "%c", c);
        }
    }
}

static void add_text(struct kolo_text *out, const char *name, const char *value)
{
    if (value != NULL) {
        kolo_text_add(out, ", \"%s\": \"", name);
        kolo_text_json(out, value);
        kolo_text_add(out, "\"");
    }
}

static void add_int(struct kolo_text *out, const char *name, long value, long unknown)
{
    if (value != unknown) {
        kolo_text_add(out, ", \"%s\": %ld", name, value);
    }
}

static void add_node(const struct kolo_node *n, struct kolo_text *out)
{
    char bus[24];
    kolo_bus_print(n->bus, bus);
    kolo_text_add(out, "{\"kind\": \"%s\"", kolo_node_kind_name(n->kind));
    add_int(out, "parent", n->parent, -1);
    add_text(out, "bus", n->bus != KOLO_BUS_NONE ? bus : NULL);
    add_int(out, "number", n->number, -1);
    add_int(out, "arch", n->arch, 0);
    add_int(out, "gdr", n->gdr, -1);
    add_int(out, "rdma", n->rdma, -1);
    add_int(out, "port", n->port, 0);
    add_int(out, "count", n->count, 0);
    if (n->gbs > 0) {
        kolo_text_add(out, ", \"gbs\": %.6g", n->gbs);
    }
    add_text(out, "name", n->name);
    add_text(out, "cpus", n->cpus);
    add_text(out, "type", n->arch_text);
    kolo_text_add(out, "}");
}

void kolo_graph_write_json(const struct kolo_graph *graph, struct kolo_text *out)
{
    kolo_text_add(out, "{\"source\": \"");
    kolo_text_json(out, graph->source);
    kolo_text_add(out, "\", \"format\": \"%s\",\n  \"nodes\": [", graph->format);
    for (int i = 0; i < graph->nnodes; i++) {
        kolo_text_add(out, i > 0 ? ",\n    " : "\n    ");
        add_node(&graph->node[i], out);
    }
    kolo_text_add(out, "],\n  \"links\": [");
    for (int i = 0; i < graph->nlinks; i++) {
        const struct kolo_link *l = &graph->link[i];
        kolo_text_add(out,
                      "%s{\"a\": %d, \"b\": %d, \"kind\": \"%s\", \"count\": %d, \"gbs\": %.6g, "
                      "\"assumed\": %s}",
                      i > 0 ? ",\n    " : "\n    ", l->a, l->b, kolo_link_kind_name(l->kind),
                      l->count, l->gbs, l->assumed ? "true" : "false");
    }
    kolo_text_add(out, "],\n  \"notes\": [");
    const char *comma = "";
    for (const char *at = graph->notes.chars; at != NULL && *at != '\0';) {
        const size_t len = strcspn(at, "\n");
        char line[256];
        memcpy(line, at, len);
        line[len] = '\0';
        kolo_text_add(out, "%s\"", comma);
        kolo_text_json(out, line);
        kolo_text_add(out, "\"");
        comma = ", ";
        at += len + 1;
    }
    kolo_text_add(out, "]}");
}
