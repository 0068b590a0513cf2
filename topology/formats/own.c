// SPDX-License-Identifier: Apache-2.0
/* kolo's own dump, complete and flat:
 *
 *   <kolo-topology version="1" source="this machine">
 *     <node kind="gpu" parent="3" bus="0000:07:00.0" number="0" arch="80"/>   nodes count from 0
 *     <link a="3" b="4" kind="PCI" count="1" gbs="24"/>
 *     <note text="..."/>
 *   </kolo-topology>
 *
 * Unknown values are left out. Numbers have enough digits to be read back unchanged. */
#include "topology/formats/members.h"
#include "topology/formats/read.h"
#include "topology/formats/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

void kolo_graph_write(const struct kolo_graph *graph, struct kolo_text *out)
{
    kolo_text_add(out, "<kolo-topology version=\"1\"");
    kolo_member_text(out, KOLO_AS_XML, "source", graph->source);
    kolo_text_add(out, ">\n");
    for (int i = 0; i < graph->nnodes; i++) {
        kolo_text_add(out, "  <node kind=\"%s\"", kolo_node_kind_name(graph->node[i].kind));
        kolo_node_members(out, KOLO_AS_XML, &graph->node[i]);
        kolo_text_add(out, "/>\n");
    }
    for (int i = 0; i < graph->nlinks; i++) {
        const struct kolo_graph_edge *l = &graph->link[i];
        kolo_text_add(out, "  <link a=\"%d\" b=\"%d\" kind=\"%s\" count=\"%d\" gbs=\"%.17g\"%s/>\n",
                      l->a, l->b, kolo_link_kind_name(l->kind), l->count, l->gbs,
                      l->assumed ? " assumed=\"1\"" : "");
    }
    for (const char *at = graph->notes.chars; at != NULL && *at != '\0';) {
        const size_t len = strcspn(at, "\n");
        char line[256];
        (void)snprintf(line, sizeof line, "%.*s", (int)len, at);
        kolo_text_add(out, "  <note");
        kolo_member_text(out, KOLO_AS_XML, "text", line);
        kolo_text_add(out, "/>\n");
        at += len + 1;
    }
    kolo_text_add(out, "</kolo-topology>\n");
}

/* ---- reading ---- */

static int kind_of(const char *text, const char *(*name)(int), int kinds)
{
    for (int k = 0; text != NULL && k < kinds; k++) {
        if (strcmp(text, name(k)) == 0) {
            return k;
        }
    }
    return -1;
}

static const char *node_name(int kind)
{
    return kolo_node_kind_name((enum kolo_node_kind)kind);
}

static const char *link_name(int kind)
{
    return kolo_link_kind_name((enum kolo_link_kind)kind);
}

static kolo_status read_numbers(const struct kolo_xml_element *e, struct kolo_node *n)
{
    int class_id = 0, vendor = 0, device = 0;
    KOLO_TRY(kolo_xml_int(e, "number", -1, 1 << 20, -1, &n->number));
    KOLO_TRY(kolo_xml_int(e, "arch", 0, 1 << 24, 0, &n->arch));
    KOLO_TRY(kolo_xml_int(e, "gdr", -1, 1, -1, &n->gdr));
    KOLO_TRY(kolo_xml_int(e, "rdma", -1, 1, -1, &n->rdma));
    KOLO_TRY(kolo_xml_int(e, "port", 0, 1024, 0, &n->port));
    KOLO_TRY(kolo_xml_int(e, "ports", 0, 1 << 20, 0, &n->ports));
    KOLO_TRY(kolo_xml_int(e, "count", 0, 1 << 20, 0, &n->count));
    KOLO_TRY(kolo_xml_int(e, "class", 0, 0xffffff, 0, &class_id));
    KOLO_TRY(kolo_xml_int(e, "vendor", 0, 0xffff, 0, &vendor));
    KOLO_TRY(kolo_xml_int(e, "device", 0, 0xffff, 0, &device));
    n->class_id = (uint32_t)class_id;
    n->vendor = (uint32_t)vendor;
    n->device = (uint32_t)device;
    return kolo_xml_number(e, "gbs", 0, &n->gbs);
}

static kolo_status read_node(struct kolo_graph *graph, const struct kolo_xml_element *e)
{
    const int kind = kind_of(kolo_xml_get(e, "kind"), node_name, KOLO_NODE_KINDS);
    const char *bus = kolo_xml_get(e, "bus");
    const char *guid = kolo_xml_get(e, "guid");
    int parent = -1;
    if (kind < 0) {
        return kolo_xml_fail(e, "kind is none of numa, switch, gpu, nic, nvswitch, device, "
                                "interface");
    }
    KOLO_TRY(kolo_xml_int(e, "parent", -1, graph->nnodes - 1, -1, &parent));
    const int node = kolo_graph_add(graph, (enum kolo_node_kind)kind, parent);
    if (node < 0) {
        return kolo_graph_full(graph);
    }
    struct kolo_node *n = &graph->node[node];
    if (bus != NULL && !kolo_bus_parse(bus, &n->bus)) {
        return kolo_xml_fail(e, "bus is \"%.40s\", not a PCI address", bus);
    }
    n->guid = guid != NULL ? strtoull(guid, NULL, 16) : 0;
    KOLO_TRY(read_numbers(e, n));
    return kolo_graph_text(graph, &n->name, kolo_xml_get(e, "name")) &&
                   kolo_graph_text(graph, &n->cpus, kolo_xml_get(e, "cpus")) &&
                   kolo_graph_text(graph, &n->arch_text, kolo_xml_get(e, "type"))
               ? KOLO_OK
               : kolo_graph_full(graph);
}

static kolo_status read_link(struct kolo_graph *graph, const struct kolo_xml_element *e)
{
    const int kind = kind_of(kolo_xml_get(e, "kind"), link_name, KOLO_LINK_KINDS);
    struct kolo_graph_edge link = {0};
    int assumed = 0;
    if (kind < 0) {
        return kolo_xml_fail(e, "kind is none of PCI, NVLink, xgmi, C2C, SMP");
    }
    KOLO_TRY(kolo_xml_int(e, "a", 0, graph->nnodes - 1, -1, &link.a));
    KOLO_TRY(kolo_xml_int(e, "b", 0, graph->nnodes - 1, -1, &link.b));
    KOLO_TRY(kolo_xml_int(e, "count", 1, 1 << 20, 1, &link.count));
    KOLO_TRY(kolo_xml_int(e, "assumed", 0, 1, 0, &assumed));
    KOLO_TRY(kolo_xml_number(e, "gbs", 0, &link.gbs));
    if (link.a < 0 || link.b < 0 || !(link.gbs > 0) || link.gbs > 1e9) {
        return kolo_xml_fail(e, "a link needs nodes a and b, and gbs greater than 0");
    }
    link.kind = (enum kolo_link_kind)kind;
    link.assumed = assumed != 0;
    return kolo_graph_join(graph, &link) ? KOLO_OK : kolo_graph_full(graph);
}

static kolo_status start_element(void *context, const struct kolo_xml_element *e)
{
    struct kolo_graph *graph = context;
    if (e->depth == 0) {
        int version = 0;
        KOLO_TRY(kolo_xml_int(e, "version", 1, 1, 1, &version));
        return strcmp(e->name, "kolo-topology") == 0
                   ? KOLO_OK
                   : kolo_xml_fail(e, "the root of kolo's dump is <kolo-topology>");
    }
    if (strcmp(e->name, "node") == 0) {
        return read_node(graph, e);
    }
    if (strcmp(e->name, "note") == 0 && kolo_xml_get(e, "text") != NULL) {
        kolo_graph_note(graph, "%.250s", kolo_xml_get(e, "text"));
    }
    return strcmp(e->name, "link") == 0 ? read_link(graph, e) : KOLO_OK;
}

kolo_status kolo_read_own(const struct kolo_xml_source *source, struct kolo_graph *graph)
{
    return kolo_xml_read(source,
                         &(struct kolo_xml_reader){.start = start_element, .context = graph});
}
