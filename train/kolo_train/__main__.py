# SPDX-License-Identifier: Apache-2.0
"""python -m kolo_train"""

import sys

from kolo_train.cli import main

sys.exit(main())
