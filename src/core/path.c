// SPDX-License-Identifier: Apache-2.0
/* The paths of this build. */
#include "core/path.h"

kolo_status kolo_path_find(int device, const struct kolo_path_ops **out)
{
    *out = kolo_paths[0];
    return *out != NULL
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_UNSUPPORTED,
                           "this kolo was built without GPUs, so it cannot use device %d; build it "
                           "with meson setup -Dgpu=enabled",
                           device);
}

kolo_status kolo_path_group_end(void)
{
    kolo_status first = KOLO_OK;
    for (int i = 0; kolo_paths[i] != NULL; i++) {
        const kolo_status st = kolo_paths[i]->group_end();
        first = first == KOLO_OK ? st : first;
    }
    return first;
}
