// SPDX-License-Identifier: Apache-2.0
/* The matrix of `nvidia-smi topo -m` as numbers: its cells, rows and legend, without conclusions. */
#ifndef KOLO_TOPOLOGY_FORMATS_SMI_H
#define KOLO_TOPOLOGY_FORMATS_SMI_H

#include "topology/formats/xml.h"

enum { KOLO_SMI_DEVICES_MAX = 512, KOLO_SMI_CELL = 48 };

/* How near two devices are, the nearest first. PHB and NODE are both one NUMA node. */
enum kolo_smi_near {
    KOLO_SMI_SELF,
    KOLO_SMI_PIX,
    KOLO_SMI_PXB,
    KOLO_SMI_NODE,
    KOLO_SMI_SYS,
    KOLO_SMI_UNKNOWN, /* N/A, or NVLinks that hide the distance */
    KOLO_SMI_CUT      /* the cell is not in the text */
};

struct kolo_smi {
    const char *path;
    int n, line;
    char (*name)[KOLO_SMI_CELL];
    char (*cpus)[KOLO_SMI_CELL]; /* of the row; "" unknown */
    int *numa;                   /* of the row; -1 unknown */
    bool *seen;                  /* the device has a row */
    unsigned char *near;         /* [n * n] enum kolo_smi_near */
    unsigned char *links;        /* [n * n] NVLinks */
    int short_rows, first_short; /* rows that are cut or absent, and the first of them */
    int unequal;                 /* pairs whose two cells have other numbers of NVLinks */
};

/* Read the matrix. A cell that is cut is taken from its mirror image. Errors: INVALID (the text has
 * file and line), SYSTEM. kolo_smi_free() is called in any case. */
KOLO_CHECK kolo_status kolo_smi_read(const struct kolo_xml_source *source, struct kolo_smi *out);
void kolo_smi_free(struct kolo_smi *smi);

static inline int kolo_smi_near(const struct kolo_smi *smi, int i, int j)
{
    return smi->near[(size_t)i * (size_t)smi->n + (size_t)j];
}
static inline int kolo_smi_links(const struct kolo_smi *smi, int i, int j)
{
    return smi->links[(size_t)i * (size_t)smi->n + (size_t)j];
}
bool kolo_smi_is_gpu(const char *name);

#endif
