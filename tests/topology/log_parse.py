# SPDX-License-Identifier: Apache-2.0
"""Compares the output of `kolo log --json` with the facts that a person read in the log."""


def differences(wanted, got, text):
    """The facts of `wanted` that the parse lacks, as (key, got, wanted)."""
    wrong = []
    for key, value in wanted.items():
        if key == "communicators":
            have = [[c["nranks"], c["hosts"], c["channels"]] for c in got[key]]
        elif key == "sizes":
            have = [c["nranks"] for c in got["communicators"]]
        elif key == "vias":
            have = [via for via in value if via in got["transports"]]
        elif key in ("rings", "tree_roots"):
            have = {channel: got[key].get(channel) for channel in value}
        elif key in ("notes", "no_notes"):
            found = [part for part in value if any(part in issue for issue in got["issues"])]
            have, value = (value, value) if found == (value if key == "notes" else []) else (got["issues"], value)
        elif key == "text":
            have = [part for part in value if part in text]
        else:
            have = got.get(key)
        if key != "status" and have != value:
            wrong.append((key, have, value))
    return wrong
