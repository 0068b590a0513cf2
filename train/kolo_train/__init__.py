# SPDX-License-Identifier: Apache-2.0
"""Ways to train one model on several ranks, each a short module: see train/README.md."""

import os

# PyTorch's profiler, which times the communication, tells of each start and stop otherwise.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
