# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest: torchft's groups of gloo are groups of kolo."""
import torchft
import torchft.process_group

from kolo_torch.torchft import ProcessGroupBabyKolo, ProcessGroupKolo

torchft.ProcessGroupGloo = torchft.process_group.ProcessGroupGloo = ProcessGroupKolo
torchft.process_group.ProcessGroupBabyGloo = ProcessGroupBabyKolo
