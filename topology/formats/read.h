// SPDX-License-Identifier: Apache-2.0
/* The readers, one a format. file.c makes the graph, a reader fills it, and file.c finishes it.
 * Errors: INVALID (the text has file and line), SYSTEM. */
#ifndef KOLO_TOPOLOGY_FORMATS_READ_H
#define KOLO_TOPOLOGY_FORMATS_READ_H

#include "topology/formats/xml.h"
#include "topology/machine/graph.h"

KOLO_CHECK kolo_status kolo_read_nccl(const struct kolo_xml_source *source,
                                      struct kolo_graph *graph);
KOLO_CHECK kolo_status kolo_read_own(const struct kolo_xml_source *source,
                                     struct kolo_graph *graph);
KOLO_CHECK kolo_status kolo_read_smi(const struct kolo_xml_source *source,
                                     struct kolo_graph *graph);

#endif
