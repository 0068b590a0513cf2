# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's analyser of flight recorders says of files that kolo wrote.

usage: analyse.py FOLDER   (files 0, 1, ... of JSON; the analyser itself reads pickles)
"""
import json
import os
import pickle
import sys
import tempfile

from torch.distributed.flight_recorder import fr_trace

with tempfile.TemporaryDirectory() as scratch:
    for name in sorted(os.listdir(sys.argv[1])):
        with open(os.path.join(sys.argv[1], name), encoding="utf-8") as file:
            dump = json.load(file)
        with open(os.path.join(scratch, "rank_" + name), "wb") as file:
            pickle.dump(dump, file)
    fr_trace.main([scratch, "--prefix", "rank_"])
