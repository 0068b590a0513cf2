// SPDX-License-Identifier: Apache-2.0
/* All algorithms, transports and tuners: the built-in ones first, then what plug-ins brought.
 *
 * A plug-in's struct may be older, and so shorter, than ours. It is laid over a table of defaults,
 * as the built-in transports are, so that a caller never meets a NULL slot: a default returns
 * UNSUPPORTED, or does nothing where nothing is right.
 *
 * Which files are loaded is decided by their owner and permissions, because loading one runs it:
 * an absolute path, no symbolic link at its end; the file and every directory above it belong to
 * root or to this user; nobody else may write to them (a directory with the sticky bit, such as
 * /tmp, will do, as others cannot replace our files in it). */
#ifndef KOLO_PLUGIN_CATALOGUE_H
#define KOLO_PLUGIN_CATALOGUE_H

#include "util/util.h"

#include <kolo/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Load what KOLO_PLUGIN lists; the first call does it, later ones return its status. Not in a
 * set-user-id program. Errors: as kolo_plugin_load_file(), for the first file refused. */
kolo_status kolo_plugins_load(void);

/* Load one plug-in; a file that was loaded is left alone. Errors: INVALID (the path, its owner or
 * permissions, its name, a slot, a name that is taken; the text says which), VERSION (ABI or size),
 * SYSTEM (it cannot be opened or linked). */
kolo_status kolo_plugin_load_file(const char *path);

/* Any thread. What was there keeps its index; NULL for an index out of range. */
int kolo_algo_count_all(void);
const struct kolo_algo *kolo_algo_at(int index);
int kolo_transport_count_all(void);
const struct kolo_transport *kolo_transport_at(int index);
int kolo_tuner_count_all(void);
const struct kolo_tuner *kolo_tuner_at(int index);

/* By name, or NULL. */
const struct kolo_algo *kolo_algo_find(const char *name);
const struct kolo_transport *kolo_transport_find(const char *name);
const struct kolo_tuner *kolo_tuner_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
