# SPDX-License-Identifier: Apache-2.0
"""Makes "kolo" known to torch.distributed without loading it: what torch's entry points call.

`import torch` calls autoload() (entry point torch.backends); newer releases call register() when the
name is first asked for (torch.distributed.backends). kolo_torch itself, and with it libkolo, is
loaded by the first process group.
"""
import os

import torch.distributed as dist


def _create(group, options):
    import kolo_torch

    return kolo_torch.create(group, options)


def register():
    """Register the backend; again does nothing. KOLO_TORCH_DEFAULT=cpu,cuda: make it the default of
    these devices."""
    if not dist.is_available():
        return
    if "kolo" not in dist.Backend.backend_list:
        dist.Backend.register_backend("kolo", _create, extended_api=True, devices=["cpu", "cuda"])
    for device in filter(None, os.environ.get("KOLO_TORCH_DEFAULT", "").split(",")):
        dist.Backend.default_device_backend_map[device.strip()] = "kolo"


def autoload():
    """An exception would make `import torch` fail for programs that never wanted kolo: there is
    none, and `import kolo_torch` will tell what is wrong."""
    try:
        register()
    except Exception:
        pass
