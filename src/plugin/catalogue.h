// SPDX-License-Identifier: Apache-2.0
/* All algorithms, transports and tuners: first the built-in ones, then the plug-ins.
 *
 * The struct of an older plug-in may be shorter than ours. It is copied over a table of defaults,
 * as the built-in transports are, so that no slot is NULL. A default returns UNSUPPORTED, or does
 * nothing if that is correct.
 *
 * Loading a file runs its code, so the path, owner and permissions are checked. The path is
 * absolute, and the file is no symbolic link. The file and every directory above it belong to root
 * or to this user, and no other user may write to them. A directory with the sticky bit, for
 * example /tmp, is allowed, because other users cannot replace our files in it. */
#ifndef KOLO_PLUGIN_CATALOGUE_H
#define KOLO_PLUGIN_CATALOGUE_H

#include "util/util.h"

#include <kolo/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Load the plug-ins of KOLO_PLUGIN. The first call loads them; later calls return its status. A
 * set-user-id program loads none. Errors: as kolo_plugin_load_file(), for the first refused file.
 */
kolo_status kolo_plugins_load(void);

/* Load one plug-in, unless the file is loaded already. Errors:
 *   INVALID  the path, its owner or permissions, its name, a slot, or a name that is taken; the
 *            text says which
 *   VERSION  the ABI or the size
 *   SYSTEM   the file cannot be opened or linked */
kolo_status kolo_plugin_load_file(const char *path);

/* Any thread may call these. An entry keeps its index. NULL: the index is out of range. */
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
