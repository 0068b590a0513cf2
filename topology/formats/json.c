// SPDX-License-Identifier: Apache-2.0
/* A graph as one JSON object: nodes, links and notes. */
#include "topology/formats/members.h"
#include "topology/formats/write.h"
#include "util/escape.h"

#include <string.h>

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
