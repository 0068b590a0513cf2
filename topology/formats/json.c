// SPDX-License-Identifier: Apache-2.0
/* A machine as JSON, and text as JSON's strings. */
#include "topology/machine/members.h"

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

void kolo_graph_write_json(const struct kolo_graph *graph, struct kolo_text *out)
{
    kolo_text_add(out, "{\"source\": \"");
    kolo_text_json(out, graph->source);
    kolo_text_add(out, "\", \"format\": \"%s\",\n  \"nodes\": [", graph->format);
    for (int i = 0; i < graph->nnodes; i++) {
        kolo_text_add(out, i > 0 ? ",\n    " : "\n    ");
        kolo_text_add(out, "{\"kind\": \"%s\"", kolo_node_kind_name(graph->node[i].kind));
        kolo_node_members(out, KOLO_AS_JSON, &graph->node[i]);
        kolo_text_add(out, "}");
    }
    kolo_text_add(out, "],\n  \"links\": [");
    for (int i = 0; i < graph->nlinks; i++) {
        const struct kolo_graph_edge *l = &graph->link[i];
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
