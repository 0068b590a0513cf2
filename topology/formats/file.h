// SPDX-License-Identifier: Apache-2.0
/* A machine from a file of any known format. The format is found by content, not by name. */
#ifndef KOLO_TOPOLOGY_FORMATS_FILE_H
#define KOLO_TOPOLOGY_FORMATS_FILE_H

#include "topology/machine/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kolo_host;

enum { KOLO_FILE_BYTES_MAX = 64 << 20 };

/* Read all of a regular file and append a final 0; the caller frees it. Errors: INVALID, SYSTEM. */
KOLO_CHECK kolo_status kolo_file_read(const char *path, char **out, size_t *len_out);

/* Read a graph from a file. Errors: INVALID (the text has file, line and fault), SYSTEM. */
KOLO_CHECK kolo_status kolo_graph_load(const char *path, struct kolo_graph **out);
/* Read a graph from `len` bytes of the file `path`. Errors as above. */
KOLO_CHECK kolo_status kolo_graph_read(const char *path, const char *bytes, size_t len,
                                       struct kolo_graph **out);

/* Read a host from `len` bytes of the hwloc XML file `path` (read_hwloc.c). Errors as above. */
KOLO_CHECK kolo_status kolo_host_read(const char *path, const char *bytes, size_t len,
                                      struct kolo_host **out);

/* False: the file is in a format other than hwloc's, which has no CPUs. True also for a file that
 * cannot be read: opening it reports the error. */
bool kolo_file_is_hwloc(const char *path);

#ifdef __cplusplus
}
#endif
#endif
