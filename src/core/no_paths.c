// SPDX-License-Identifier: Apache-2.0
/* The paths of a build with -Dgpu=disabled: none. */
#include "core/path.h"

const struct kolo_path_ops *const kolo_paths[] = {NULL};
